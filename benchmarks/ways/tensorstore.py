"""TensorStore: index lists with several reads under way, and, as a limit, everything in bulk."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.case import Case
from benchmarks.files import array_path
from benchmarks.ways.way import way

__all__: list[str] = []

_READS_AHEAD = 4
_CHUNKS_TOGETHER = 64


def _in_zarr(case: Case) -> bool:
    return case.format == "zarr" and not case.pairs


def _open(case: Case, path: Path, cache_bytes: int = 0) -> Any:
    import tensorstore as ts

    spec = {
        "driver": "zarr3",
        "kvstore": {"driver": "file", "path": f"{array_path(case, path)}/"},
        "recheck_cached_data": False,
        "recheck_cached_metadata": False,
    }
    context = ts.Context({"cache_pool": {"total_bytes_limit": cache_bytes}})
    return ts.open(spec, read=True, context=context).result()


def _index_lists(case: Case, array: Any) -> Iterable[Any]:
    rng = np.random.default_rng(1)

    class Epochs:
        def __iter__(self) -> Iterator[np.ndarray]:
            order = rng.permutation(case.elements)
            reads: deque[Any] = deque()
            for start in range(0, case.elements, case.batch):
                reads.append(array[order[start : start + case.batch]].read())
                if len(reads) > _READS_AHEAD:
                    yield reads.popleft().result()
            while reads:
                yield reads.popleft().result()

    return Epochs()


@way("TensorStore, index list", "tensorstore", applies=_in_zarr)
def index_list(case: Case, path: Path) -> Iterable[Any]:
    return _index_lists(case, _open(case, path))


@way("TensorStore, index list, cache", "tensorstore", applies=_in_zarr)
def index_list_with_cache(case: Case, path: Path) -> Iterable[Any]:
    """The same with as many bytes for decoded chunks as oocdata has."""
    return _index_lists(case, _open(case, path, case.chunk_budget))


@way("limit: TensorStore in bulk", "tensorstore", kind="limit", applies=_in_zarr)
def bulk(case: Case, path: Path) -> Iterable[Any]:
    """Every chunk once, many of them at a time into one buffer that is there already."""
    import tensorstore as ts

    array = _open(case, path)
    together = max(case.chunk_rows * _CHUNKS_TOGETHER, case.shard_rows)
    buffers = [np.zeros((together, *case.element), case.dtype) for _ in range(2)]

    class Epochs:
        def __iter__(self) -> Iterator[int]:
            reads: deque[tuple[Any, int]] = deque()
            for number, start in enumerate(range(0, case.rows, together)):
                if len(reads) == len(buffers):
                    read, rows = reads.popleft()
                    read.result()
                    yield rows
                rows = min(together, case.rows - start)
                target = ts.array(buffers[number % len(buffers)][:rows], copy=False)
                reads.append((target.write(array[start : start + rows]).copy, rows))
            while reads:
                read, rows = reads.popleft()
                read.result()
                yield rows

    return Epochs()
