"""Compressed members of an ``.npz``: one chunk, which is the whole array.

A deflated member can be read from its beginning only (APPNOTE 4.4.5), so its rows have no address.
It is decoded as a whole and kept in the process's cache, like a chunk of any other format; one that
is larger than the cache is refused, because each batch would decode it again.
"""

from __future__ import annotations

import zipfile
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocdata.engines.files import File, Version
from oocdata.engines.soon import Soon
from oocdata.engines.source import Storage
from oocdata.errors import DamagedChunkError, concerning
from oocdata.formats.stored import opened, refused_in

__all__ = ["DeflatedMember"]


@dataclass(frozen=True, slots=True)
class DeflatedMember:
    """A compressed array in a ZIP archive; a `oocdata.engines.chunked.ChunkReader`."""

    version: Version
    member: str  #: its name in the archive
    part: tuple[int, int]  #: where its header begins in the file, and where its bytes end
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    stored: np.dtype[Any]  #: as it lies there
    fortran: bool
    skipped: int  #: bytes of the ``.npy`` header
    described: Storage = field(compare=False, repr=False)
    file: File = field(compare=False, repr=False)

    own_threads = False

    @property
    def chunk_shape(self) -> tuple[int, ...]:
        """The whole array."""
        return tuple(max(1, length) for length in self.shape)

    def storage(self) -> Storage:
        """Return how the array is stored."""
        return self.described

    def check(self) -> None:
        """Raise if the file has changed since it was opened."""
        self.file.check(self.described.key)

    @property
    def _steps(self) -> tuple[int, int]:
        """How many bytes to read at a time, and how often: nothing of the next member."""
        length = self.part[1] - self.part[0]
        count = -(-length // _STORED_STEP)
        return -(-length // count), count

    def soon(self, places: NDArray[np.int64]) -> list[Soon]:
        """Return what decoding the array will take out of a store."""
        length = min(prod(self._steps), self.version.nbytes - self.part[0])
        return self.file.soon(np.array([self.part[0]]), length)

    def read_chunks(self, places: NDArray[np.int64], outs: Any) -> None:
        """Decode the array; with the last byte zipfile compares its CRC-32 (APPNOTE 4.4.7)."""
        (out,) = outs
        plain = out.flags.c_contiguous and not self.fortran and self.stored == out.dtype
        whole = out if plain else np.empty(self.shape[:: -1 if self.fortran else 1], self.stored)
        memory = whole.reshape(-1).view(np.uint8)
        try:
            with (
                opened(self.version.path, self._steps[0], self.version) as (packed, _),
                zipfile.ZipFile(packed) as archive,
            ):
                file: Any = archive.open(self.member)
                file.read(self.skipped)
                done = 0
                while done < len(memory):
                    got = file.readinto(memory[done : done + _STEP])
                    if not got:
                        raise EOFError(f"it ends after {done} of {len(memory)} bytes")
                    done += got
        # What a damaged archive raises is anything: zlib.error, struct.error, BadZipFile, …
        except Exception as error:
            self.check()  # bytes that were written over are not damaged
            with concerning(self.version.path, self.described.key):
                raise refused_in(error) or DamagedChunkError(
                    f"a member must decode; {error}. Its bytes are damaged: restore the file."
                ) from error
        if not plain:
            out[...] = whole.T if self.fortran else whole


_STORED_STEP = 8 << 20
"""Bytes that are read at a time out of a store, at most."""

_STEP = 1 << 20
"""Bytes asked for at a time, which are in memory twice."""
