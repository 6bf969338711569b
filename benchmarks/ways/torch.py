"""PyTorch's DataLoader over a map-style dataset that fetches a whole batch (`__getitems__`)."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.case import Case
from benchmarks.ways.stored import Stored
from benchmarks.ways.way import way

__all__: list[str] = []

WORKERS = os.cpu_count() or 2


class Elements:
    """One read for all rows of a batch; a dataset needs no base class."""

    def __init__(self, case: Case, path: Path) -> None:
        self.stored = Stored(case, path)

    def __len__(self) -> int:
        return len(self.stored)

    def __getitem__(self, position: int) -> Any:
        return self.stored.element(position)

    def __getitems__(self, positions: list[int]) -> Any:
        return self.stored.batch(np.asarray(positions))


def _tensors(batch: Any) -> Any:
    """Collate: the batch is there already, and becomes tensors without a copy."""
    import torch

    if isinstance(batch, tuple):
        return tuple(torch.from_numpy(array) for array in batch)
    return torch.from_numpy(batch)


def _data_loader(case: Case, path: Path, **options: Any) -> Any:
    from torch.utils.data import DataLoader

    return DataLoader(
        Elements(case, path),
        batch_size=case.batch,
        shuffle=True,
        collate_fn=_tensors,
        **options,
    )


@way("PyTorch, in process", "torch")
def in_process(case: Case, path: Path) -> Any:
    return _data_loader(case, path)


@way(f"PyTorch, {WORKERS} workers", "torch")
def several_workers(case: Case, path: Path) -> Any:
    # Spawned: neither HDF5 nor Zarr's event loop survives a fork.
    return _data_loader(
        case, path, num_workers=WORKERS, multiprocessing_context="spawn", persistent_workers=True
    )
