"""h5py by hand: a list of indices for each batch, or one row after the other."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.case import Case
from benchmarks.ways.stored import Stored
from benchmarks.ways.way import way

__all__: list[str] = []


def _in_hdf5(case: Case) -> bool:
    return case.format == "hdf5" and not case.pairs


@way("h5py, index list", "h5py", applies=_in_hdf5)
def index_list(case: Case, path: Path) -> Iterable[Any]:
    stored = Stored(case, path)
    rng = np.random.default_rng(1)

    class Epochs:
        def __iter__(self) -> Iterator[np.ndarray]:
            order = rng.permutation(case.elements)
            for start in range(0, case.elements, case.batch):
                # h5py asks for indices that increase strictly.
                yield stored.array[np.sort(order[start : start + case.batch])]

    return Epochs()


@way("h5py, row by row", "h5py", applies=lambda case: _in_hdf5(case) and case.chunk_rows > 0)
def row_by_row(case: Case, path: Path) -> Iterable[Any]:
    stored = Stored(case, path)
    rng = np.random.default_rng(1)

    class Epochs:
        def __iter__(self) -> Iterator[np.ndarray]:
            order = rng.permutation(case.elements)
            for start in range(0, case.elements, case.batch):
                yield stored.take(order[start : start + case.batch])

    return Epochs()
