"""One loader of a file of rows, and others that a saved position of it must not be used with."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import oocdata as ooc


def usual(folder: Path, **changes: Any) -> ooc.Loader:
    options: dict[str, Any] = {"batch_size": 10, "shuffle": "global", "seed": 7, **changes}
    return ooc.open(folder / "rows.npy")[:100].batches(options.pop("batch_size"), **options)


def rows_of(folder: Path) -> ooc.View:
    return ooc.open(folder / "rows.npy")


def other_file(folder: Path) -> ooc.Loader:
    """Return a loader of a file of the same size, shape and dtype."""
    rows = np.load(folder / "rows.npy")
    rows[300:] += 1
    np.save(folder / "other.npy", rows)
    return ooc.open(folder / "other.npy")[:100].batches(10, shuffle="global", seed=7)


OTHERS: list[tuple[Callable[[Path], ooc.Loader], str]] = [
    (other_file, "source.content` differs"),
    (lambda f: usual(f, seed=8), "`seed` was 7, and is 8"),
    (lambda f: usual(f, batch_size=9), "`batch_size` was 10, and is 9"),
    (lambda f: usual(f, shuffle=False), "`order` was Shuffle, and is Sequential"),
    (lambda f: usual(f, shuffle=ooc.BlockShuffle(5, 2)), "is BlockShuffle"),
    (lambda f: usual(f, drop_remainder=True), "`drop_remainder` was False, and is True"),
    (
        lambda f: rows_of(f)[1:101].batches(10, shuffle="global", seed=7),
        "`dataset.rows` was 0:100:1, and is 1:101:1",
    ),
    (
        lambda f: rows_of(f)[np.arange(99, -1, -1)].batches(10, shuffle="global", seed=7),
        "`dataset.rows` was 0:100:1, and is #",
    ),
    (lambda f: rows_of(f)[:100, :3].batches(10), "`elements` was (8,) float64"),
    (lambda f: rows_of(f).astype("f4")[:100].batches(10), "is (8,) float32"),
    (lambda f: rows_of(f)[:101].next_frame().batches(10), "View, and is Windows"),
    (lambda f: rows_of(f)[:100].map(np.square).batches(10), "`dataset` was View, and is Map"),
    (lambda f: ooc.open(f / "rows.npy", axis=1).batches(4), "`dataset.axes` was [0], and is [1]"),
]
"""Loaders that are not the usual one, and what of it is said."""
