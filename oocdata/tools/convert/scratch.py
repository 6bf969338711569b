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
from oocdata.tools.convert.steps import Grid
from oocdata.writers.disk import writable
from oocdata.writers.flat import write_at
from oocdata.writers.storage import relative
from oocdata.writers.target import Box

__all__ = ["Scratch"]


class Scratch:
    """Pieces of an array: those of a block lie together, each in one run of bytes.

    Within a block pieces follow in C order, so that where one begins is known without a table.
    Tiles are written and blocks are read.
    """

    def __init__(
        self,
        path: str,
        blocks: Grid,
        tiles: Grid,
        dtype: np.dtype[Any],
        threads: ThreadPoolExecutor,
    ) -> None:
        self._blocks, self._tiles = blocks, tiles
        self._dtype, self._threads = dtype, threads
        self._path = path
        self._number = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)

    def write(self, tile: Box, values: NDArray[Any]) -> None:
        """Write the pieces of a tile."""

        def one(piece: Box) -> None:
            part = np.ascontiguousarray(values[relative(piece, tile)])
            write_at(self._number, part.reshape(-1).view(np.uint8).data, self._offset(piece))

        with writable(self._path):
            in_threads(self._threads, one, self._blocks.pieces(tile))

    def read(self, block: Box, out: NDArray[Any]) -> None:
        """Put a block together."""

        def one(piece: Box) -> None:
            shape = [part.stop - part.start for part in piece]
            memory = np.empty(prod(shape) * self._dtype.itemsize, np.uint8)
            done, offset = 0, self._offset(piece)
            while done < len(memory):
                got = os.preadv(self._number, [memory[done:].data], offset + done)
                if got == 0:
                    raise SourceError(
                        "the scratch file must hold what was written to it; it was cut short.",
                        path=self._path,
                    )
                done += got
            out[relative(piece, block)] = memory.view(self._dtype).reshape(shape)

        in_threads(self._threads, one, self._tiles.pieces(block))

    def _offset(self, piece: Box) -> int:
        """Return the byte at which a piece begins."""
        shape, step = self._blocks.shape, self._blocks.step
        starts = [part.start // long * long for part, long in zip(piece, step, strict=True)]
        block = [
            min(start + long, length) - start
            for start, long, length in zip(starts, step, shape, strict=True)
        ]
        offset = 0
        for axis, part in enumerate(piece):
            inside = prod(one.stop - one.start for one in piece[:axis])
            offset += prod(block[:axis]) * starts[axis] * prod(shape[axis + 1 :])
            offset += inside * (part.start - starts[axis]) * prod(block[axis + 1 :])
        return offset * self._dtype.itemsize

    def save(self) -> None:
        """Wait until the disk has it."""
        with writable(self._path):
            os.fsync(self._number)

    def close(self) -> None:
        """Close the file."""
        number, self._number = self._number, -1
        if number >= 0:
            os.close(number)
