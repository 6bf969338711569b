"""scDataset: blocks of rows in random order, many batches fetched together and mixed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.case import Case
from benchmarks.ways.stored import Stored
from benchmarks.ways.way import way

__all__: list[str] = []

_FETCH_BYTES = 64 << 20


def _rows(case: Case, path: Path, block: int) -> Any:
    from scdataset import BlockShuffling, scDataset
    from torch.utils.data import DataLoader

    stored = Stored(case, path)

    def fetch(_: Stored, rows: np.ndarray) -> Any:
        if case.format == "hdf5" and case.chunk_rows:
            # Ascending, in runs of whole blocks: h5py reads runs as slices.
            return _hdf5_runs(stored, rows, case.pairs)
        return stored.batch(rows)

    def some(data: Any, places: np.ndarray) -> Any:
        return tuple(array[places] for array in data) if case.pairs else data[places]

    # "Use fetch_factor > 1"; as many batches as fit into what a reader may hold.
    together = max(2, min(256, _FETCH_BYTES // (case.element_bytes * case.batch)))
    dataset = scDataset(
        stored,
        BlockShuffling(block_size=block),
        case.batch,
        fetch_factor=together,
        fetch_callback=fetch,
        batch_callback=some,
    )
    return DataLoader(dataset, batch_size=None, collate_fn=_as_it_is)


def _as_it_is(batch: Any) -> Any:
    return batch


def _hdf5_runs(stored: Stored, rows: np.ndarray, pairs: bool) -> Any:
    def read(wanted: np.ndarray) -> np.ndarray:
        array, case = stored.array, stored.case
        out = np.empty((len(wanted), *case.element), case.dtype)
        borders = np.flatnonzero(np.diff(wanted) != 1) + 1
        starts = [0, *borders.tolist()]
        for start, stop in zip(starts, [*borders.tolist(), len(wanted)], strict=True):
            first = int(wanted[start])
            array.read_direct(out, np.s_[first : first + stop - start], np.s_[start:stop])
        return out

    return (read(rows), read(rows + 1)) if pairs else read(rows)


@way("scDataset", "scdataset", "torch")
def blocks_of_chunks(case: Case, path: Path) -> Any:
    return _rows(case, path, case.chunk_rows or 8)  # 8 is its default
