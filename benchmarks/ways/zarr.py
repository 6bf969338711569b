"""The zarr API: orthogonal indexing and slices, on its own codecs and on zarrs (in Rust)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.case import Case
from benchmarks.ways.stored import Stored
from benchmarks.ways.way import way

__all__: list[str] = []

_CHUNKS_TOGETHER = 16


def _in_zarr(case: Case) -> bool:
    return case.format == "zarr" and not case.pairs


@way("zarr, oindex", "zarr", applies=_in_zarr)
def oindex(case: Case, path: Path) -> Iterable[Any]:
    stored = Stored(case, path)
    rng = np.random.default_rng(1)

    class Epochs:
        def __iter__(self) -> Iterator[np.ndarray]:
            order = rng.permutation(case.elements)
            for start in range(0, case.elements, case.batch):
                yield np.asarray(stored.array.oindex[np.sort(order[start : start + case.batch])])

    return Epochs()


@way("zarr with zarrs, oindex", "zarr", "zarrs", applies=_in_zarr)
def zarrs_oindex(case: Case, path: Path) -> Iterable[Any]:
    _use_zarrs()
    return oindex(case, path)


def _slices(case: Case, path: Path) -> Iterable[Any]:
    """Several chunks at a time as one slice, slices in random order, the rows of each in order."""
    stored = Stored(case, path)
    rng = np.random.default_rng(1)
    together = -(-_CHUNKS_TOGETHER * case.chunk_rows // case.batch) * case.batch

    class Epochs:
        def __iter__(self) -> Iterator[np.ndarray]:
            for start in rng.permutation(np.arange(0, case.rows, together)).tolist():
                rows = np.asarray(stored.array[start : start + together])
                for first in range(0, len(rows), case.batch):
                    yield rows[first : first + case.batch]

    return Epochs()


@way("zarr, slices", "zarr", applies=_in_zarr)
def slices(case: Case, path: Path) -> Iterable[Any]:
    return _slices(case, path)


@way("zarr with zarrs, slices", "zarr", "zarrs", applies=_in_zarr)
def zarrs_slices(case: Case, path: Path) -> Iterable[Any]:
    _use_zarrs()
    return _slices(case, path)


def _use_zarrs() -> None:
    import zarr
    import zarrs  # noqa: F401  # enters its pipeline

    zarr.config.set({"codec_pipeline.path": "zarrs.ZarrsCodecPipeline"})
