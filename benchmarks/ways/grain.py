"""Grain: a random-access source, its own shuffle, batches, threads that read ahead."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.case import Case
from benchmarks.ways.stored import Stored
from benchmarks.ways.way import way

__all__: list[str] = []


class _Source:
    def __init__(self, stored: Stored) -> None:
        self.stored = stored

    def __len__(self) -> int:
        return len(self.stored)

    def __getitem__(self, position: int) -> Any:
        return self.stored.element(int(position))


class _Epochs:
    """An epoch of its own order at each iteration, as `MapDataset.repeat` would string them."""

    def __init__(self, case: Case, path: Path, threads: int) -> None:
        self.case = case
        self.source = _Source(Stored(case, path))
        self.threads = threads
        self.epoch = 0

    def __iter__(self) -> Iterator[Any]:
        import grain

        self.epoch += 1
        # Batched before it is read by threads: each thread makes whole batches, and few are kept.
        batches = grain.MapDataset.source(self.source).shuffle(seed=self.epoch)
        options = grain.ReadOptions(
            num_threads=self.threads, prefetch_buffer_size=max(2, self.threads) * bool(self.threads)
        )
        return iter(batches.batch(self.case.batch).to_iter_dataset(options))


@way("Grain", "grain")
def in_process(case: Case, path: Path) -> Iterable[Any]:
    # What `ReadOptions` recommends for data in memory; here, in the page cache.
    return _Epochs(case, path, 0)


@way("Grain, 2 threads", "grain")
def two_threads(case: Case, path: Path) -> Iterable[Any]:
    return _Epochs(case, path, 2)
