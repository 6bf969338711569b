"""Read a compressed member of an ``.npz`` as one chunk.

A deflated member can be read from its beginning only (APPNOTE 4.4.5), so its rows have no offsets.
It is decoded as a whole into the chunk cache. `open_npz` refuses one that is larger than the cache,
because every batch would decode it again.
"""

from __future__ import annotations

import zipfile
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocdata.engines.files import File, Version
from oocdata.engines.prefetch import Fetch
from oocdata.engines.source import Storage
from oocdata.errors import DamagedChunkError, error_location
from oocdata.formats.paths import open_stream, store_error_in

__all__ = ["DeflatedMember"]

_STORED_STEP = 8 << 20
"""Most bytes that are fetched from a store at a time."""

_STEP = 1 << 20
"""Bytes that are decoded at a time; zipfile copies them once."""


@dataclass(frozen=True, slots=True)
class DeflatedMember:
    """A compressed array in a ZIP archive; a `oocdata.engines.chunked.ChunkReader`."""

    version: Version
    member: str  #: name in the archive
    span: tuple[int, int]  #: offsets in the file of its header, and of its end
    shape: tuple[int, ...]
    dtype: np.dtype[Any]  #: in native byte order
    stored: np.dtype[Any]  #: in stored byte order
    fortran: bool
    header_bytes: int  #: length of the ``.npy`` header
    described: Storage = field(compare=False, repr=False)
    file: File = field(compare=False, repr=False)

    own_threads = False

    @property
    def chunk_shape(self) -> tuple[int, ...]:
        """Shape of the whole array."""
        return tuple(max(1, length) for length in self.shape)

    def storage(self) -> Storage:
        """Return how the array is stored."""
        return self.described

    def check(self) -> None:
        """Raise if the file has changed since it was opened."""
        self.file.opened().compare(self.described.key)

    @property
    def _steps(self) -> tuple[int, int]:
        """Size and number of equal steps in which the member is fetched."""
        length = self.span[1] - self.span[0]
        count = -(-length // _STORED_STEP)
        return -(-length // count), count

    def fetches(self, places: NDArray[np.int64]) -> list[Fetch]:
        """Return the requests to a store that decoding the array will need."""
        length = min(prod(self._steps), self.version.nbytes - self.span[0])
        return self.file.fetches(np.array([self.span[0]]), length)

    def read_chunks(self, places: NDArray[np.int64], outs: Any) -> None:
        """Decode the array; zipfile verifies its CRC-32 at the last byte (APPNOTE 4.4.7)."""
        (out,) = outs
        plain = out.flags.c_contiguous and not self.fortran and self.stored == out.dtype
        whole = out if plain else np.empty(self.shape[:: -1 if self.fortran else 1], self.stored)
        memory = whole.reshape(-1).view(np.uint8)
        try:
            with (
                open_stream(self.version.path, self._steps[0], self.version) as (packed, _),
                zipfile.ZipFile(packed) as archive,
            ):
                file: Any = archive.open(self.member)
                file.read(self.header_bytes)
                done = 0
                while done < len(memory):
                    count = file.readinto(memory[done : done + _STEP])
                    if not count:
                        raise EOFError(f"it ends after {done} of {len(memory)} bytes")
                    done += count
        # A damaged archive may raise anything: zlib.error, struct.error, BadZipFile, …
        except Exception as error:
            self.check()  # a file that has changed is reported as changed, not as damaged
            with error_location(self.version.path, self.described.key):
                raise store_error_in(error) or DamagedChunkError(
                    f"a member must decode; {error}. Its bytes are damaged: restore the file."
                ) from error
        if not plain:
            out[...] = whole.T if self.fortran else whole
