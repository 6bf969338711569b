"""``python -m benchmarks.ragged``: rows of unequal length, ours beside the ways of TensorFlow.

Token ids, and where each row begins, lie in two ``.npy`` files; most rows are short, a few long.
Each way has a process of its own; they take turns, an epoch each. All bytes lie in the page cache.
TensorFlow's ways read them from arrays in memory, by a generator or as a ragged tensor.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.taking_turns import Batches, measured, parser, passes, serve, table
from oocdata.tools.demo.data import workspace

__all__ = ["WAYS", "main", "write"]

_BATCH, _MEAN, _LONGEST = 64, 100, 1024
_BOUNDS = (64, 128, 256, 512, _LONGEST)


def write(folder: Path, count: int) -> None:
    """Write so many rows of token ids, int32, of about a hundred each."""
    random = np.random.default_rng(0)
    lengths = np.clip(random.exponential(_MEAN, count).astype(np.int64), 1, _LONGEST)
    np.save(folder / "offsets.npy", np.concatenate(([0], np.cumsum(lengths))))
    np.save(folder / "tokens.npy", random.integers(1, 30_000, lengths.sum(), "i4"))


def _rows(folder: Path) -> Any:
    import oocdata as ooc

    return ooc.ragged(folder / "tokens.npy", folder / "offsets.npy")


def _ragged(folder: Path, *, shuffle: bool = True, to_tf: bool = True) -> Batches:
    return passes(_rows(folder).batches(_BATCH, shuffle=shuffle), to_tf=to_tf)


def _padded(folder: Path) -> Batches:
    return passes(_rows(folder).pad((_LONGEST,)).batches(_BATCH), to_tf=True)


def _bucketed(folder: Path) -> Batches:
    rows = _rows(folder).pad(_BOUNDS)
    return passes(rows.batches(_BATCH, shuffle=True, bucket=_BOUNDS), to_tf=True)


def _generated(folder: Path) -> Any:
    """Return the dataset of single rows that a generator makes."""
    import tensorflow as tf

    tokens = np.load(folder / "tokens.npy", mmap_mode="r")
    offsets = np.load(folder / "offsets.npy")

    def rows() -> Iterator[Any]:
        for start, stop in itertools.pairwise(offsets.tolist()):
            yield tokens[start:stop]

    spec = tf.TensorSpec((None,), tf.int32)
    return tf.data.Dataset.from_generator(rows, output_signature=spec)


def _sliced(folder: Path) -> Any:
    """Return the dataset of the rows of a ragged tensor that holds all of them."""
    import tensorflow as tf

    tokens, offsets = (np.load(folder / f"{name}.npy") for name in ("tokens", "offsets"))
    whole = tf.RaggedTensor.from_row_splits(tokens, offsets, validate=False)
    return tf.data.Dataset.from_tensor_slices(whole).map(lambda row: row)


def _tf_ragged(rows: Callable[[Path], Any], folder: Path) -> Batches:
    dataset = rows(folder).ragged_batch(_BATCH).prefetch(2)
    return lambda: dataset


def _tf_padded(rows: Callable[[Path], Any], folder: Path) -> Batches:
    dataset = rows(folder).padded_batch(_BATCH, padded_shapes=[_LONGEST]).prefetch(2)
    return lambda: dataset


def _tf_bucketed(rows: Callable[[Path], Any], folder: Path) -> Batches:
    import tensorflow as tf

    dataset = (
        rows(folder)
        .shuffle(10_000)
        .bucket_by_sequence_length(
            tf.size,
            bucket_boundaries=[bound + 1 for bound in _BOUNDS],
            bucket_batch_sizes=[_BATCH] * (len(_BOUNDS) + 1),
            pad_to_bucket_boundary=False,
        )
    )
    dataset = dataset.prefetch(2)
    return lambda: dataset


WAYS: dict[str, tuple[str, Callable[[Path], Batches]]] = {
    "oocdata, NumPy": ("ragged", lambda folder: _ragged(folder, to_tf=False)),
    "oocdata to_tf, in order": ("ragged", lambda folder: _ragged(folder, shuffle=False)),
    "oocdata to_tf, shuffled": ("ragged", _ragged),
    "from_generator, ragged_batch": ("ragged", lambda at: _tf_ragged(_generated, at)),
    "ragged tensor, ragged_batch": ("ragged", lambda at: _tf_ragged(_sliced, at)),
    "oocdata to_tf, padded in order": ("padded", _padded),
    "from_generator, padded_batch": ("padded", lambda at: _tf_padded(_generated, at)),
    "ragged tensor, padded_batch": ("padded", lambda at: _tf_padded(_sliced, at)),
    "oocdata to_tf, bucket": ("bucketed", _bucketed),
    "from_generator, bucket_by_sequence_length": (
        "bucketed", lambda at: _tf_bucketed(_generated, at),
    ),
    "ragged tensor, bucket_by_sequence_length": (
        "bucketed", lambda at: _tf_bucketed(_sliced, at),
    ),
}  # fmt: skip
"""What a batch is, and what makes passes."""

_OURS = {
    "ragged": "oocdata to_tf, in order",
    "padded": "oocdata to_tf, padded in order",
    "bucketed": "oocdata to_tf, bucket",
}


def rows_of(batch: Any) -> int:
    """Return how many rows a batch has."""
    shape = getattr(batch, "shape", None)
    return len(batch) if shape is None or shape[0] is None else int(shape[0])


def main(arguments: list[str] | None = None) -> int:
    """Run what the command line asks for; return 1 if a way does not deliver every row."""
    options = parser("benchmarks.ragged", __doc__, "rows", 200_000).parse_args(arguments)
    if options.way:
        serve(WAYS[options.way][1](options.folder), rows_of)
        return 0
    with workspace() as own:
        folder = options.folder or own
        if not (folder / "tokens.npy").exists():
            write(folder, options.count)
        count = len(np.load(folder / "offsets.npy", mmap_mode="r")) - 1
        given = ["--folder", str(folder)]
        found = measured("benchmarks.ragged", WAYS, given, options.rounds)
    print(f"{count:,} rows of {_MEAN} tokens on average, batches of {_BATCH}; ", end="")
    print(f"median of {options.rounds}\n")
    return table(found, "row", lambda name: _OURS[WAYS[name][0]], count)


if __name__ == "__main__":
    raise SystemExit(main())
