"""``python -m benchmarks.series``: windows of a time series, ours beside the ways of Keras.

A ``.npy`` file of rows of a few numbers, one row a time; an element is a window of rows and the row
after it. Each way has a process of its own; they take turns, an epoch each. All bytes lie in the
page cache, and are shuffled.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.taking_turns import Batches, measured, parser, passes, serve, table
from oocdata.tools.demo.data import workspace

__all__ = ["INPUTS", "WAYS", "main", "windows_of", "write"]

INPUTS = 64
"""Rows of a window."""

_BATCH, _WIDTH = 64, 17


def write(folder: Path, count: int) -> None:
    """Write the rows of so many windows, float32."""
    rows = np.random.default_rng(0).standard_normal((count + INPUTS, _WIDTH), np.float32)
    np.save(folder / "series.npy", rows)


def _ours(folder: Path, *, to_tf: bool) -> Batches:
    import oocdata as ooc

    loader = ooc.open(folder / "series.npy").windows(INPUTS, 1).batches(_BATCH, shuffle=True)
    return passes(loader, to_tf=to_tf)


def _keras(folder: Path) -> Batches:
    import keras

    rows = np.load(folder / "series.npy")
    dataset = keras.utils.timeseries_dataset_from_array(
        rows[:-1], rows[INPUTS:], INPUTS, batch_size=_BATCH, shuffle=True
    )
    return lambda: dataset


def _py_dataset(folder: Path) -> Batches:
    import keras

    rows, steps = np.load(folder / "series.npy", mmap_mode="r"), np.arange(INPUTS)
    order = np.random.default_rng(0).permutation(len(rows) - INPUTS)

    class Windows(keras.utils.PyDataset):  # type: ignore[misc]
        def __len__(self) -> int:
            return -(-len(order) // _BATCH)

        def __getitem__(self, index: int) -> Any:
            starts = order[index * _BATCH : (index + 1) * _BATCH]
            return rows[starts[:, None] + steps], rows[starts + INPUTS]

    dataset = Windows()
    return lambda: (dataset[index] for index in range(len(dataset)))


WAYS: dict[str, Callable[[Path], Batches]] = {
    "oocdata to_tf": lambda folder: _ours(folder, to_tf=True),
    "oocdata, NumPy": lambda folder: _ours(folder, to_tf=False),
    "timeseries_dataset_from_array": _keras,
    "PyDataset over a mapping, its batches alone": _py_dataset,
}


def windows_of(batch: Any) -> int:
    """Return how many windows a batch has."""
    return int(batch[0].shape[0])


def main(arguments: list[str] | None = None) -> int:
    """Run what the command line asks for; return 1 if a way does not deliver every window."""
    options = parser("benchmarks.series", __doc__, "windows", 500_000).parse_args(arguments)
    if options.way:
        serve(WAYS[options.way](options.folder), windows_of)
        return 0
    with workspace() as own:
        folder = options.folder or own
        if not (folder / "series.npy").exists():
            write(folder, options.count)
        count = len(np.load(folder / "series.npy", mmap_mode="r")) - INPUTS
        given = ["--folder", str(folder)]
        found = measured("benchmarks.series", WAYS, given, options.rounds)
    print(f"{count:,} windows of {INPUTS} rows of {_WIDTH} numbers, batches of {_BATCH}; ", end="")
    print(f"median of {options.rounds}\n")
    return table(found, "window", lambda name: "oocdata to_tf", count)


if __name__ == "__main__":
    raise SystemExit(main())
