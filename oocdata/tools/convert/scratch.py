"""The file that an array goes through where no order of reading is good for both sides."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocdata.errors import SourceError
from oocdata.threads import in_threads
from oocdata.tools.convert.steps import Steps
from oocdata.writers.disk import writable
from oocdata.writers.flat import write_at
from oocdata.writers.storage import relative
from oocdata.writers.target import Box

__all__ = ["Scratch"]


class Scratch:
    """Pieces of an array: those of a block lie together, each in one run of bytes.

    Within a block pieces follow in C order, so that where one begins is known without a table.

    Parameters
    ----------
    path : str
    steps : Steps
        With tiles.
    dtype : numpy.dtype
    threads : ThreadPoolExecutor
    """

    def __init__(
        self, path: str, steps: Steps, dtype: np.dtype[Any], threads: ThreadPoolExecutor
    ) -> None:
        self._blocks, self._tiles = steps.blocks, steps.tiles or steps.blocks
        self._dtype, self._threads = dtype, threads
        self._path = path
        self._number = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0), 0o666)

    def write(self, tile: Box, values: NDArray[Any]) -> None:
        """Write the pieces of a tile."""

        def one(piece: Box) -> None:
            part = values[relative(piece, tile)]
            data = np.ascontiguousarray(part).reshape(-1).view(np.uint8).data
            write_at(self._number, data, self._offset(piece))

        with writable(self._path):
            in_threads(self._threads, one, self._blocks.touched(tile))

    def read(self, block: Box, out: NDArray[Any]) -> None:
        """Put a block together."""

        def one(piece: Box) -> None:
            shape = [part.stop - part.start for part in piece]
            memory = np.empty(prod(shape) * self._dtype.itemsize, np.uint8)
            self._fill(memory, self._offset(piece))
            out[relative(piece, block)] = memory.view(self._dtype).reshape(shape)

        in_threads(self._threads, one, self._tiles.touched(block))

    def _fill(self, memory: NDArray[np.uint8], offset: int) -> None:
        done = 0
        while done < len(memory):
            got = os.preadv(self._number, [memory[done:].data], offset + done)
            if got == 0:
                raise SourceError(
                    "the scratch file must hold what was written to it; it was cut short.",
                    path=self._path,
                )
            done += got

    def _offset(self, piece: Box) -> int:
        """Return the byte at which a piece begins."""
        shape, step = self._blocks.shape, self._blocks.step
        before = inside = 0
        slab = 1  # elements of the block that lie side by side across the axes seen so far
        piece_slab = 1
        for axis, part in enumerate(piece):
            first = part.start // step[axis] * step[axis]
            long = min(first + step[axis], shape[axis]) - first
            rest = prod(shape[axis + 1 :])
            before += slab * first * rest
            slab *= long
            within = prod(
                min(p.start // s * s + s, n) - p.start // s * s
                for p, s, n in zip(
                    piece[axis + 1 :], step[axis + 1 :], shape[axis + 1 :], strict=True
                )
            )
            inside += piece_slab * (part.start - first) * within
            piece_slab *= part.stop - part.start
        return (before + inside) * self._dtype.itemsize

    def save(self) -> None:
        """Wait until the disk has it."""
        with writable(self._path):
            os.fsync(self._number)

    def close(self) -> None:
        """Close the file."""
        number, self._number = self._number, -1
        if number >= 0:
            os.close(number)
