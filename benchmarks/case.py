"""What is measured: one frozen description of a file, and of what is wanted from it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np
from numpy.typing import NDArray

__all__ = ["PARTS", "Case"]

PARTS = 64
"""Contiguous parts of an array that count as labels when a batch's mixing is measured."""

_STEPS = 2**16


@dataclass(frozen=True, slots=True)
class Case:
    """Rows in a file, and the batches that are made of them.

    Attributes
    ----------
    name : str
    format : str
        ``"npy"``, ``"npy sparse"`` (no data, only its length), ``"hdf5"`` or ``"zarr"``.
    rows : int
    element : tuple of int
        Shape of a row.
    dtype : str
    batch : int
        Elements in a batch.
    chunk_rows : int
        Rows stored together; 0 where the file is one run of rows.
    codec : str
        ``"none"``, ``"gzip+shuffle"`` or ``"zstd"``.
    shard_rows : int
        Rows in a shard of a Zarr array; 0 without shards.
    order : str
        ``"global"`` or ``"block"``: what oocdata is asked for. The others shuffle as they can.
    cache : str
        ``"warm"``, or ``"cold"``: the file is dropped from the page cache before each round.
    pairs : bool
        Elements are pairs of rows that follow one another.
    chunk_budget : int
        Bytes of decoded chunks that may be kept, by oocdata and by TensorStore's cache alike.
    """

    name: str
    format: str
    rows: int
    element: tuple[int, ...]
    dtype: str
    batch: int
    chunk_rows: int = 0
    codec: str = "none"
    shard_rows: int = 0
    order: str = "global"
    cache: str = "warm"
    pairs: bool = False
    chunk_budget: int = 256 << 20

    @property
    def elements(self) -> int:
        """Elements in an epoch."""
        return self.rows - self.pairs

    @property
    def row_bytes(self) -> int:
        """Bytes of a row, decoded."""
        return prod(self.element) * np.dtype(self.dtype).itemsize

    @property
    def element_bytes(self) -> int:
        """Bytes that a way has to deliver for an element."""
        return self.row_bytes * (1 + self.pairs)

    @property
    def part_rows(self) -> int:
        """Rows in one of the parts that count as labels."""
        return max(1, -(-self.rows // PARTS))

    @property
    def stamped(self) -> bool:
        """Whether every row holds its own number."""
        return self.format != "npy sparse"

    @property
    def file_name(self) -> str:
        """Name of the file; cases that read the same bytes share it."""
        shape = "x".join(map(str, (self.rows, *self.element)))
        stored = f"{self.chunk_rows}-{self.codec}-{self.shard_rows}"
        kind = self.format.replace(" ", "-")
        suffix = {"npy": "npy", "npy sparse": "npy", "hdf5": "h5", "zarr": "zarr"}[self.format]
        return f"{kind}-{shape}-{self.dtype}-{stored}.{suffix}"

    def values(self, first: int, count: int) -> NDArray[np.generic]:
        """Return rows of the array, each with its number at its beginning and at its end.

        Noise where nothing compresses them; otherwise curves with a little noise, which gzip makes
        two to three times smaller, as it does measurements.
        """
        rng = np.random.default_rng(first)
        shape = (count, *self.element)
        dtype = np.dtype(self.dtype)
        if dtype.kind == "f" and self.codec == "none":
            rows = rng.random(shape, np.float32).astype(dtype)
        elif dtype.kind == "f":
            along = np.linspace(0, 6, prod(self.element), dtype=np.float32)
            phase = rng.random((count, 1), np.float32) * 6
            # Whole steps, as a 16-bit instrument has them, the last six bits of them noise.
            steps = np.rint(np.sin(along + phase) * _STEPS)
            steps += rng.integers(-32, 32, (count, len(along)), np.int8)
            curves = steps / np.float32(_STEPS)
            rows = curves.astype(dtype).reshape(shape)
        else:
            rows = np.frombuffer(rng.bytes(prod(shape)), dtype).reshape(shape).copy()
        _stamp(rows, np.arange(first, first + count))
        return rows

    def rows_of(self, batch: NDArray[np.generic]) -> NDArray[np.int64]:
        """Return the row numbers that a delivered batch holds; -1 where a row is not whole.

        Some libraries deliver bytes as wider integers: the values count.
        """
        beginnings, ends = _stamps(np.ascontiguousarray(batch, self.dtype))
        return np.where(beginnings == ends, beginnings, -1)

    def look(self, arrays: Sequence[NDArray[np.generic]]) -> tuple[NDArray[np.int64], int]:
        """Return the row numbers of a batch, and how many elements are wrong."""
        wrong = sum(array.shape[1:] != self.element for array in arrays) * len(arrays[0])
        if not self.stamped:
            return np.full(len(arrays[0]), -1), wrong
        rows = self.rows_of(arrays[0])
        wrong += int((rows < 0).sum())
        if self.pairs:
            wrong += int((self.rows_of(arrays[1]) != rows + 1).sum())
        return rows, wrong


def _stamp(rows: NDArray[np.generic], numbers: NDArray[np.int64]) -> None:
    flat = rows.reshape(len(rows), -1)
    if rows.dtype.kind == "f":
        flat[:, 0] = flat[:, -1] = numbers
        return
    stamps = numbers.astype("<u4").view(np.uint8).reshape(-1, 4)
    flat.view(np.uint8)[:, :4] = stamps
    flat.view(np.uint8)[:, -4:] = stamps


def _stamps(rows: NDArray[np.generic]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    flat = rows.reshape(len(rows), -1)
    if rows.dtype.kind == "f":
        return flat[:, 0].astype(np.int64), flat[:, -1].astype(np.int64)
    octets = flat.view(np.uint8)
    ends = (octets[:, :4], octets[:, -4:])
    first, last = (np.ascontiguousarray(end).view("<u4")[:, 0].astype(np.int64) for end in ends)
    return first, last
