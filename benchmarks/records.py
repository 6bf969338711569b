"""``python -m benchmarks.records``: lines of text and TFRecords in order, ours beside TensorFlow's.

Each way has a process of its own; they take turns, an epoch each. All bytes lie in the page cache.
A pass makes batches of the bytes alone, neither parsed nor tokenised. TensorFlow's readers come as
they are and with ``prefetch``, as its guides recommend.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.taking_turns import Batches, measured, parser, passes, serve, table
from oocdata.tools.demo.data import workspace

__all__ = ["SIZES", "WAYS", "main", "path_of", "write"]

_BATCH = 256

SIZES = {"lines": 80, "100-byte records": 100, "1-KB records": 1000, "10-KB records": 10_000}
"""Bytes of a row of each file, on average; `lines` are text."""


def path_of(folder: Path, kind: str) -> str:
    """Return the path of the file of a kind of rows."""
    ending = "txt" if kind == "lines" else "tfrecord"
    return str(folder / f"{kind.replace(' ', '-')}.{ending}")


def write(folder: Path, kind: str, count: int) -> None:
    """Write a file of rows whose lengths differ by half, with as many bytes as `count` KB."""
    import tensorflow as tf

    random, size = np.random.default_rng(0), SIZES[kind]
    lengths = random.integers(size // 2, size + size // 2, count * 1000 // size).tolist()
    letters = random.integers(97, 123, 1 << 20, "u1").tobytes()
    rows = (letters[place % 1000 :][:length] for place, length in enumerate(lengths))
    if kind == "lines":
        Path(path_of(folder, kind)).write_bytes(b"".join(row + b"\n" for row in rows))
        return
    with tf.io.TFRecordWriter(path_of(folder, kind)) as file:
        for row in rows:
            file.write(row)


def _ours(path: str, *, to_tf: bool, shuffle: bool = False) -> Batches:
    import oocdata as ooc

    return passes(ooc.open(path).batches(_BATCH, shuffle=shuffle), to_tf=to_tf)


def _tensorflow(path: str, *, prefetch: bool) -> Batches:
    import tensorflow as tf

    reader = tf.data.TextLineDataset if path.endswith("txt") else tf.data.TFRecordDataset
    dataset = reader(path).batch(_BATCH)
    dataset = dataset.prefetch(tf.data.AUTOTUNE) if prefetch else dataset
    return lambda: dataset


WAYS = {
    "oocdata to_tf": partial(_ours, to_tf=True),
    "oocdata NumPy": partial(_ours, to_tf=False),
    "oocdata to_tf, shuffled": partial(_ours, to_tf=True, shuffle=True),
    "TensorFlow": partial(_tensorflow, prefetch=False),
    "TensorFlow, prefetch": partial(_tensorflow, prefetch=True),
}


def rows_of(batch: Any) -> int:
    """Return how many rows a batch has."""
    return int(batch.shape[0])


def main(arguments: list[str] | None = None) -> int:
    """Run what the command line asks for; return 1 if a way does not deliver every row."""
    line = parser("benchmarks.records", __doc__, "KB of a file", 200_000)
    line.add_argument("--kind", nargs="+", choices=SIZES, default=[*SIZES], metavar="KIND")
    options = line.parse_args(arguments)
    if options.way:
        serve(WAYS[options.way](path_of(options.folder, options.kind[0])), rows_of)
        return 0
    failed = 0
    with workspace() as own:
        folder = options.folder or own
        for kind in options.kind:
            write(folder, kind, options.count)
            given = ["--folder", str(folder), "--kind", kind]
            found = measured("benchmarks.records", WAYS, given, options.rounds)
            count = options.count * 1000 // SIZES[kind]
            print(f"\n{kind}: {count:,}; batches of {_BATCH}, median of {options.rounds}\n")
            failed |= table(found, "row", lambda _: "oocdata to_tf", count)
    return failed


if __name__ == "__main__":
    raise SystemExit(main())
