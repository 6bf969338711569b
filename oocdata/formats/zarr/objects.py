"""Survey the stored objects of a Zarr array: which exist, and whether one has changed.

An absent chunk reads as the fill value: its writer left it out (``write_empty_chunks=False``), or
it was lost; storage can't tell which. So absent chunks are counted and reported. Where that is
cheap (4 µs an object) all are surveyed at open, and each must stay the version that it was.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from itertools import chain, islice
from typing import Any

import numpy as np

from oocdata.box import Ints
from oocdata.engines.gather.grid import c_strides
from oocdata.errors import MissingChunkError, SourceError
from oocdata.formats.zarr.metadata import ArrayMetadata
from oocdata.formats.zarr.store import Store, join

_MOST_SURVEYED = 32_768
"""Largest number of stored objects that are surveyed at open."""

_MOST_VERSIONS = 1 << 24
"""Largest number of stored objects whose versions are compared, 8 bytes each."""

_UNKNOWN, ABSENT = 0, -1
_REPORTED_ROWS = 1000


class Objects:
    """The stored objects of the array at `key`, numbered in C order of their grid.

    Errors call positions along `axis` rows. `stored_bytes` is the size of all objects (None unless
    all were surveyed), `absent_count` the number of absent ones, and `where` names the array for a
    `SourceError`.
    """

    def __init__(self, store: Store, key: str, metadata: ArrayMetadata, axis: int) -> None:
        self.store, self.key, self.metadata, self.axis = store, key, metadata, axis
        self.grid = metadata.grid
        self.count = math.prod(self.grid)
        self.stored_bytes: int | None = None
        self.absent_count = 0
        self.versions = self._unknown()
        self.where: dict[str, Any] = {"path": store.path, "key": key or None}

    def _unknown(self) -> Ints | None:
        """Return an array for the versions of objects, none known yet; None if not compared."""
        if not self.store.versioned or self.count > _MOST_VERSIONS:
            return None
        return np.zeros(self.count, np.int64)  # takes memory as it is written

    def __getstate__(self) -> dict[str, Any]:
        state = dict(self.__dict__)
        if self.stored_bytes is None:  # without a survey, another process notes its own
            del state["versions"]
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        if "versions" not in state:
            self.versions = self._unknown()

    def survey(self, *, refuse: bool) -> None:
        """Look up every stored object where that is cheap; raise if one is absent and refused."""
        if not self.store.listable or self.count > _MOST_SURVEYED:
            return
        stored_bytes, absent = 0, []
        for number, place in enumerate(np.ndindex(*self.grid)):
            found = self.store.status(self.name(place))
            if self.versions is not None:
                self.versions[number] = ABSENT if found is None else found[1]
            if found is None:
                absent.append(place)
            else:
                stored_bytes += found[0]
        if refuse and absent:
            places, first = np.concatenate(list(map(self.chunks, absent))), self.name(absent[0])
            raise self.missing_error(f"{len(absent)} are not, the first object {first!r}", places)
        self.stored_bytes, self.absent_count = stored_bytes, len(absent)

    def digest(self) -> bytes:
        """Return a digest of the versions of all objects."""
        if self.versions is None:
            return b""
        return blake2b(self.versions.tobytes(), digest_size=16).digest()

    def object_numbers(self, places: Ints) -> list[int]:
        """Return the number of each chunk's object."""
        objects = places // np.array(self.metadata.chunks_per_object, np.int64)
        found: list[int] = (objects @ c_strides(self.grid)).tolist()
        return found

    def numbers(self, places: Ints) -> list[int]:
        """Return the numbers of the chunks' objects, each once, for `note` and `compare`.

        Empty if versions are not known, or if each comes with the object's bytes, as over a link.
        """
        if self.versions is None or self.store.is_remote:
            return []
        return sorted(set(self.object_numbers(places)))

    def known(self, number: int) -> int:
        """Return the version of an object that was recorded first, 0 if unknown."""
        return _UNKNOWN if self.versions is None else int(self.versions[number])

    def note(self, numbers: Iterable[int]) -> None:
        """Record the unknown versions of objects, before they are read."""
        self.compare(number for number in numbers if self.known(number) == _UNKNOWN)

    def compare(self, numbers: Iterable[int]) -> None:
        """Raise if an object, after it was read, is not the version that was recorded."""
        for number in numbers:
            self.expect(number, self._version(number))

    def expect(self, number: int, version: int) -> None:
        """Raise if the version of an object is not the one that was recorded first."""
        if self.versions is None:
            return
        if self.versions[number] == _UNKNOWN:
            self.versions[number] = version
        if self.versions[number] == version != _UNKNOWN:
            return
        place = self.place(number)
        how = "was deleted" if version == ABSENT else "was written anew"
        raise SourceError(
            f"the stored object {self.name(place)!r} must be as it was when the array was "
            f"opened; it {how}. Open the array again.",
            **self.where,
            **self.rows(self.chunks(place)),
        )

    def chunks(self, place: Sequence[int]) -> Ints:
        """Return the grid positions of an object's chunks that begin within the array."""
        metadata = self.metadata
        per = metadata.chunks_per_object
        found = np.argwhere(np.ones(per, np.bool_)) + np.multiply(place, per)
        return found[(found * metadata.chunk_shape < metadata.shape).all(axis=1)]

    def absent_chunks(self, place: Sequence[int]) -> Ints:
        """Return the grid positions of the chunks of an object that are not stored."""
        index, name = self.metadata.codecs.shard_index, self.name(place)
        if index is None:
            is_stored: Any = self.store.status(name) is not None
        else:
            stored = self.store.read(name, *index.part)
            try:
                is_stored = index.addresses(stored or b"", sys.maxsize)[..., 0] >= 0
            except ValueError:  # a damaged index is reported when its chunks are read
                is_stored = stored is not None
        chunks, per = self.chunks(place), self.metadata.chunks_per_object
        absent: Ints = chunks[~np.broadcast_to(is_stored, per)[*(chunks % per).T]]
        return absent

    def missing_error(self, problem: str, places: Ints) -> SourceError:
        """Return the error for chunks that are not stored."""
        return MissingChunkError(
            f"every chunk must be stored; {problem}. They were never written or have been lost. If "
            "their writer leaves out chunks that hold only the fill value "
            f"{self.metadata.fill_value} (write_empty_chunks=False, zarr's default), open with "
            'missing="fill".',
            **self.where,
            **self.rows(places),
        )

    def rows(self, places: Ints) -> dict[str, Any]:
        """Return the first rows of chunks and their number, as arguments of `SourceError`."""
        metadata, axis = self.metadata, self.axis
        if not metadata.shape:
            return {}
        length, step = metadata.shape[axis], metadata.chunk_shape[axis]
        starts: list[int] = (np.unique(places[:, axis]) * step).tolist()
        runs = [range(start, min(start + step, length)) for start in starts]
        first = islice(chain.from_iterable(runs), _REPORTED_ROWS)
        return {"rows": list(first), "count": sum(map(len, runs))}

    def place(self, number: int) -> tuple[int, ...]:
        """Return the grid position of an object."""
        return tuple(map(int, np.unravel_index(number, self.grid)))

    def name(self, place: Sequence[int]) -> str:
        """Return the name of an object below the store."""
        return join(self.key, self.metadata.name(place))

    def _version(self, number: int) -> int:
        found = self.store.status(self.name(self.place(number)))
        return ABSENT if found is None else found[1]
