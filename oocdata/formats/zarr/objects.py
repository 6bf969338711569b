"""The stored objects of a Zarr array: which are there, and whether one has changed.

A chunk that is absent reads as the fill value. Its writer left it out because it holds nothing else
(``write_empty_chunks=False``, the default of most), or it was lost in a copy: storage can't tell
which. So absent chunks are counted and told. Asking a file system for an object takes some 4 µs;
where that is cheap all are asked for at open, and each has to stay the version that it was.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from oocdata.errors import DamagedChunkError, MissingChunkError, SourceError
from oocdata.formats.zarr.metadata import ArrayMetadata
from oocdata.formats.zarr.store import Store, join

__all__ = ["Objects", "Survey"]

_MOST_SURVEYED = 32_768
"""Stored objects from which on none is asked for before it is read."""

_MOST_VERSIONS = 1 << 24
"""Stored objects from which on no versions are kept, 8 bytes each."""

_UNKNOWN, _ABSENT = 0, -1
_ROWS_TOLD = 1000


class Survey(NamedTuple):
    """What asking for every stored object told.

    Attributes
    ----------
    stored_bytes : int
    total, absent : int
        Stored objects that the array has room for, and how many of them are not there.
    """

    stored_bytes: int
    total: int
    absent: int


class Objects:
    """The stored objects of one array, numbered in C order of their grid.

    Parameters
    ----------
    store : Store
    key : str
        Of the array below the store.
    metadata : ArrayMetadata
    axis : int
        The axis whose places errors call rows.

    Attributes
    ----------
    surveyed : Survey or None
        None where not every object was asked for.
    """

    def __init__(self, store: Store, key: str, metadata: ArrayMetadata, axis: int) -> None:
        self.store = store
        self.key = key
        self.metadata = metadata
        self.axis = axis
        self.grid = metadata.grid
        self.count = math.prod(self.grid)
        self.surveyed: Survey | None = None
        self._versions: NDArray[np.int64] | None = None
        if store.versioned and self.count <= _MOST_VERSIONS:
            self._versions = np.zeros(self.count, np.int64)  # no memory until it is written to

    def __getstate__(self) -> dict[str, Any]:
        state = dict(self.__dict__)
        if self.count > _MOST_SURVEYED:  # another process finds them out as this one did
            state["_versions"] = None if self._versions is None else self.count
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        if isinstance(state["_versions"], int):
            state["_versions"] = np.zeros(state["_versions"], np.int64)
        self.__dict__.update(state)

    @property
    def nbytes(self) -> int:
        """Bytes of the table of versions."""
        return 0 if self._versions is None else self._versions.nbytes

    def survey(self, *, refuse: bool) -> None:
        """Ask for every stored object, where that is cheap; `surveyed` stays None where it is not.

        Parameters
        ----------
        refuse : bool
            Absent chunks are errors, those within shards too.

        Raises
        ------
        oocdata.errors.MissingChunkError, oocdata.errors.DamagedChunkError
            With the rows concerned.
        """
        metadata = self.metadata
        if not self.store.listable or self.count > _MOST_SURVEYED:
            return
        total = absent = 0
        chunks: list[NDArray[np.int64]] = []  # absent ones, if they are refused
        first = ""
        for number in range(self.count):
            place = self.place(number)
            name = self.name(place)
            found = self.store.status(name)
            if self._versions is not None:
                self._versions[number] = _ABSENT if found is None else found.version
            if found is None:
                absent += 1
            else:
                total += found.nbytes
                self._check_size(place, name, found.nbytes)
            if refuse and (found is None or metadata.shard_index is not None):
                missing = self._absent_within(place, name)
                if missing.size:
                    first = first or name
                    chunks.append(missing)
        if chunks:
            places = np.concatenate(chunks)
            what = f"{len(places)} of the array's chunks are missing, the first in {first!r}"
            raise self.missing(what, places)
        self.surveyed = Survey(total, self.count, absent)

    def digest(self) -> bytes:
        """Return what tells these versions of all objects from others."""
        return (
            b""
            if self._versions is None
            else blake2b(self._versions.tobytes(), digest_size=16).digest()
        )

    def numbers(self, places: NDArray[np.int64]) -> list[int]:
        """Return the numbers of the objects in which chunks lie, each once."""
        if self._versions is None:
            return []
        objects = places // self.metadata.chunks_per_object
        if not objects.shape[1]:
            return [0]
        found: list[int] = np.unique(np.ravel_multi_index(tuple(objects.T), self.grid)).tolist()
        return found

    def note(self, numbers: Iterable[int]) -> None:
        """Remember the versions of objects that were never asked for, before they are read."""
        versions = self._versions
        if versions is not None:
            for number in numbers:
                if versions[number] == _UNKNOWN:
                    versions[number] = self._version(number)

    def compare(self, numbers: Iterable[int]) -> None:
        """Raise if an object is not the version that it was at first, after it was read.

        Raises
        ------
        oocdata.errors.SourceError
            With the rows of the object.
        """
        versions = self._versions
        if versions is None:
            return
        for number in numbers:
            now = self._version(number)
            if now != versions[number]:
                name = self.name(self.place(number))
                how = "was deleted" if now == _ABSENT else "was written anew"
                step = self.metadata.object_shape[self.axis]
                raise SourceError(
                    f"the stored object {name!r} must be as it was when the array was opened; it "
                    f"{how}. Open the array again.",
                    path=self.store.path,
                    key=self.key or None,
                    **self._rows([self.place(number)[self.axis]], step),
                )

    def absent(self, places: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return which chunks are not stored.

        Raises
        ------
        oocdata.errors.SourceError
            If that can't be told.
        """
        per = self.metadata.chunks_per_object
        found = np.zeros(len(places), bool)
        objects, which = np.unique(places // per, axis=0, return_inverse=True)
        for number, place in enumerate(objects.tolist()):
            here = np.flatnonzero(which.reshape(-1) == number)
            missing = self._missing(self.name(place))
            found[here] = missing if isinstance(missing, bool) else missing[*(places[here] % per).T]
        return found

    def missing(self, what: str, places: NDArray[np.int64]) -> SourceError:
        """Return the error for chunks that are not there."""
        return MissingChunkError(
            f"every chunk must be stored; {what}. They were never written or have been lost. If "
            "their writer leaves out chunks that hold only the fill value "
            f"{self.metadata.fill_value} (write_empty_chunks=False, zarr's default), open with "
            'missing="fill".',
            path=self.store.path,
            key=self.key or None,
            **self.rows(places),
        )

    def rows(self, places: NDArray[np.int64]) -> dict[str, Any]:
        """Return the rows of chunks as `SourceError` takes them: the first, and how many."""
        return self._rows(places[:, self.axis].tolist(), self.metadata.chunk_shape[self.axis])

    def place(self, number: int) -> tuple[int, ...]:
        """Return the place of an object in the grid."""
        return tuple(map(int, np.unravel_index(number, self.grid))) if self.grid else ()

    def name(self, place: Sequence[int]) -> str:
        """Return the name of an object below the store."""
        return join(self.key, self.metadata.name(place))

    def name_of(self, file: str) -> str:
        """Return the name of a file of metadata below the store."""
        return join(self.key, file)

    def _version(self, number: int) -> int:
        found = self.store.status(self.name(self.place(number)))
        return _ABSENT if found is None else found.version

    def _rows(self, numbers: Iterable[int], step: int) -> dict[str, Any]:
        length = self.metadata.shape[self.axis]
        first: list[int] = []
        count = 0
        for number in sorted(set(numbers)):
            rows = range(number * step, min((number + 1) * step, length))
            first.extend(rows[: _ROWS_TOLD - len(first)])
            count += len(rows)
        return {"rows": first, "count": count}

    def _absent_within(self, place: Sequence[int], name: str) -> NDArray[np.int64]:
        """Return the chunks of an object that are not stored but begin within the array."""
        metadata = self.metadata
        per = metadata.chunks_per_object
        missing = self._missing(name)
        inner = np.argwhere(np.full(per, missing) if isinstance(missing, bool) else missing)
        chunks = inner + np.multiply(place, per)
        starts = chunks * metadata.chunk_shape
        return chunks[(starts < metadata.shape).all(axis=1)]

    def _missing(self, name: str) -> bool | NDArray[np.bool_]:
        """Return which chunks of an object are not there: for all alike, or for each in C order."""
        metadata = self.metadata
        if not metadata.sharded:
            return self.store.status(name) is None
        index = metadata.shard_index
        if index is None:
            raise SourceError(
                "a missing chunk can't be told from a stored one in these shards, whose index is "
                'encoded. Give missing="fill" if every absent chunk holds the fill value.',
                path=self.store.path,
                key=self.key or None,
            )
        stored = self.store.read_part(name, None if index.at_end else 0, index.nbytes)
        if stored is None:
            return True
        # Where it was cut short, the library that reads it says so.
        return index.absent(stored) if len(stored) == index.nbytes else False

    def _check_size(self, place: Sequence[int], name: str, nbytes: int) -> None:
        metadata = self.metadata
        least = metadata.shard_index.nbytes if metadata.shard_index is not None else 1
        if metadata.raw_bytes is not None and nbytes != metadata.raw_bytes:
            rule = f"hold {metadata.raw_bytes} bytes (nothing is compressed)"
        elif nbytes < least:
            rule = f"hold at least {least} bytes"
        else:
            return
        raise DamagedChunkError(
            f"the stored object {name!r} must {rule}; got {nbytes}. It was cut short, or its "
            "writer is not done.",
            path=self.store.path,
            key=self.key or None,
            **self._rows([place[self.axis]], metadata.object_shape[self.axis]),
        )
