"""What is measured: one frozen case, and the file it is measured on."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from pathlib import Path

import numpy as np

__all__ = ["QUICK", "WORK_A", "Case"]


@dataclass(frozen=True, slots=True)
class Case:
    """Shuffled next-frame pairs of one array.

    Attributes
    ----------
    rows : int
    element : tuple of int
    dtype : str
    batch : int
    """

    name: str
    rows: int
    element: tuple[int, ...]
    dtype: str
    batch: int

    @property
    def pairs(self) -> int:
        return self.rows - 1

    @property
    def row_bytes(self) -> int:
        return prod(self.element) * np.dtype(self.dtype).itemsize

    def write(self, folder: Path) -> Path:
        """Write the array block by block, so that the writer's memory is flat too."""
        path = folder / f"{self.name}.npy"
        array = np.lib.format.open_memmap(
            path, mode="w+", dtype=self.dtype, shape=(self.rows, *self.element)
        )
        rng = np.random.default_rng(0)
        block = max(1, (32 << 20) // self.row_bytes)
        for start in range(0, self.rows, block):
            part = array[start : start + block]
            part[...] = rng.random(part.shape, np.float32)
            array.flush()
        return path


WORK_A = Case("work-a", 20_000, (3, 50, 50), "f8", 32)
QUICK = Case("work-a-quick", 2_000, (3, 50, 50), "f8", 32)
