"""Zarr hierarchies in object stores and behind HTTP.

Stored chunks are fetched within the one bound on requests. Of shards, only the chunks that are
wanted are fetched, by the addresses in the shard's index.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocdata.engines.files import Version
from oocdata.engines.runs import UnfinishedError
from oocdata.engines.soon import Soon
from oocdata.errors import ArgumentError, DamagedChunkError, SourceError
from oocdata.formats.patterns import Missing
from oocdata.formats.zarr.objects import Objects
from oocdata.formats.zarr.readers import ZarrReader
from oocdata.formats.zarr.store import Status, Store
from oocdata.memory import scratch_share
from oocdata.stores.address import Address, list_names
from oocdata.stores.answer import Answer
from oocdata.stores.failures import ChangedError, ForbiddenError
from oocdata.stores.files import StoredFile, of_version
from oocdata.stores.given import is_given, refused
from oocdata.stores.link import ANSWERED, link
from oocdata.stores.looking import small
from oocdata.stores.objects import StoredObjects
from oocdata.stores.versions import ObjectVersion, VersionTable, cache_folder

__all__ = ["Remote", "RemoteReader"]

_MOST_INDICES = 4096
"""Indices of shards that are kept, within a quarter of what memory has for tables."""

Ints = NDArray[np.int64]


class Remote(Store):
    """A Zarr hierarchy at a URL."""

    is_remote = True

    def __init__(self, path: str, cache: str | None = None) -> None:
        super().__init__(path)
        self.cache = cache_folder() if cache is None else cache
        if is_given(path):  # which another process calls so too
            self.cache = ""
        self.address = Address.of(path)
        self._small: dict[str, Answer | None] = {}

    def __reduce__(self) -> tuple[type[Store], tuple[Any, ...]]:
        if is_given(self.path):
            raise ArgumentError(refused(self.path))
        return Remote, (self.path, self.cache)

    def prefetch(self, names: Sequence[str]) -> None:
        """Ask for metadata files at once; each is asked for once."""
        forbidden: SourceError | None = None
        new = [name for name in names if name not in self._small]
        for name, found in zip(new, small([self.address / name for name in new]), strict=True):
            if isinstance(found, SourceError) and not isinstance(found, ForbiddenError):
                raise found
            self._small[name] = found if isinstance(found, Answer) else None
            forbidden = found if isinstance(found, ForbiddenError) else forbidden
        if forbidden is not None and not any(self._small.values()):
            raise forbidden

    def read(self, name: str, start: int = 0, stop: int | None = None) -> bytes | None:
        """Return the bytes of a metadata file, or a part of another object."""
        if not start and stop is None:
            self.prefetch([name])
            found = self._small[name]
        else:
            address = self.address / name
            found = link().start(lambda: link().get_if_there(address, start, stop)).result()
        return None if found is None else bytes(found.data)

    def status(self, name: str) -> Status | None:
        """Return how long an object is; None where there is none."""
        address = self.address / name
        found = link().start(lambda: link().get_if_there(address, 0, 1)).result()
        return None if found is None else Status(found.nbytes, 1)

    def file(self, name: str) -> Version | None:
        """Return the version of a metadata file."""
        self.prefetch([name])
        found = self._small[name]
        return None if found is None else ObjectVersion.of(self.address / name, found, self.cache)

    def folders(self, key: str) -> list[str] | None:
        """Return the names of the folders in one; None where the store can't list."""
        if self.address.root.startswith("http"):
            return None
        return [name for name, is_folder in list_names(self.address / key) if is_folder]


class _Fetched:
    """The stored chunks of an array in a `Remote`, fetched."""

    def __init__(self, objects: Objects) -> None:
        self.objects = objects
        metadata = objects.metadata
        assert isinstance(objects.store, Remote)
        self.store = objects.store
        self._index = index = metadata.codecs.shard_index if metadata.indexed else None
        self._axes = [] if index is None else list(index.axes)
        address = Address.of(objects.store.path) / objects.key
        ANSWERED.add(address.root)

        def at(number: int) -> Address:
            return address / metadata.name(objects.place(number))

        self._at = at
        """Where an object lies; refers to nothing that refers to it."""
        self._indices: dict[int, tuple[StoredFile, Ints] | None] = {}
        self._coming: dict[int, Future[Answer | None]] = {}
        whole = self._index is None
        # Of all shards, also of those whose indices were evicted.
        self._versions = VersionTable(0 if whole else objects.count)
        self._lock = threading.Lock()
        nbytes = int(np.prod(metadata.object_shape)) * metadata.dtype.itemsize
        self._whole = StoredObjects(
            at,
            objects.count if whole else 0,
            nbytes,  # compressed by how much is not known: or they exceed the bound
            self.store.cache,
        )

    def __reduce__(self) -> tuple[type[_Fetched], tuple[Objects]]:
        return _Fetched, (self.objects,)

    @property
    def table_bytes(self) -> int:
        """Bytes that are taken by what is noted of objects, once all were read."""
        indices = min(self.objects.count, self._most_indices) * getattr(self._index, "nbytes", 0)
        return self._versions.nbytes + self._whole.nbytes + indices

    @property
    def _most_indices(self) -> int:
        """How many indices of shards are kept, or read at a time."""
        nbytes = 1 if self._index is None else self._index.nbytes
        return max(1, min(_MOST_INDICES, scratch_share() // 4 // nbytes))

    def soon(self, places: Ints) -> list[Soon]:
        """Return what decoding chunks will take out of the store."""
        if self._index is None:
            return [Soon(self._whole, self.objects.numbered(places))]
        found = []
        for file, _, offsets, sizes in self._located(places):
            found += file.soon(offsets, sizes)
        return found

    def take(self, places: Ints) -> list[Any]:
        """Return the stored bytes of chunks; None for those that are not there."""
        if self._index is None:
            try:
                return self._whole.take(self.objects.numbered(places))
            except SourceError as error:
                raise self._about(error, self.objects.rows(places)) from error
        found: list[Any] = [None] * len(places)
        for file, which, offsets, sizes in self._located(places):
            memory, ends = np.empty(sizes.sum(), np.uint8), np.cumsum(sizes)
            try:
                file.read_runs(offsets, memory.ctypes.data + ends - sizes, sizes, memory)
            except UnfinishedError as error:
                if not isinstance(error.cause, SourceError):
                    raise
                raise self._about(error.cause, self.objects.rows(places[which])) from error
            for number, stop, nbytes in zip(
                which.tolist(), ends.tolist(), sizes.tolist(), strict=True
            ):
                found[number] = memory[stop - nbytes : stop]
        return found

    def _about(self, error: SourceError, rows: dict[str, Any]) -> SourceError:
        """Return an error with the dataset and the rows that it concerns."""
        return type(error)(error.message, path=error.path, key=self.objects.where["key"], **rows)

    def _located(self, places: Ints) -> Iterator[tuple[StoredFile, Ints, Ints, Ints]]:
        """Yield shards, which of the chunks each holds, and where they lie in it."""
        per = np.array(self.objects.metadata.chunks_per_object)
        shards, which = np.unique(self.objects.numbered(places), return_inverse=True)
        each, most = shards.tolist(), self._most_indices
        some = (self._indices_of(each[at : at + most]) for at in range(0, len(each), most))
        for number, index in enumerate(chain.from_iterable(some)):
            if index is None:
                continue
            file, addresses = index
            chunks = np.flatnonzero(which == number)
            offsets, sizes = addresses[(*(places[chunks] % per).T[self._axes],)].T
            there = offsets >= 0
            if there.any():
                yield file, chunks[there], offsets[there], sizes[there]

    def _indices_of(self, shards: Sequence[int]) -> list[tuple[StoredFile, Ints] | None]:
        """Return shards with the addresses of their chunks; None for one that is not there."""
        assert self._index is not None
        begin, end = self._index.part
        with self._lock:
            known = {shard: self._indices[shard] for shard in shards if shard in self._indices}
            asked = [shard for shard in shards if shard not in known]
            for shard in asked:  # what another thread has asked for, comes for both
                if shard not in self._coming:
                    get = partial(link().get_if_there, self._at(shard), begin, end)
                    self._coming[shard] = link().start(get)
            coming = {shard: self._coming[shard] for shard in asked}
        try:
            for shard, done in coming.items():
                known[shard] = found = self._index_in(shard, done)
                version = hash(None if found is None else found[0].version) or 1
                if not self._versions.first(shard, version):
                    raise ChangedError(
                        "the object must be as it was when it was first read; it was written "
                        "anew. Open the array again.",
                        path=self._at(shard).url,
                        key=self.objects.where["key"],
                        **self.objects.rows_of(self.objects.place(shard)),
                    )
        finally:
            with self._lock:
                for shard, done in coming.items():
                    if self._coming.get(shard) is done:
                        del self._coming[shard]
        with self._lock:
            if len(self._indices) + len(asked) > self._most_indices:
                self._indices.clear()
            self._indices.update({shard: known[shard] for shard in asked})
        return [known[shard] for shard in shards]

    def _index_in(self, shard: int, done: Future[Answer | None]) -> tuple[StoredFile, Ints] | None:
        """Return a shard with the addresses of its chunks, when its index has come."""
        index, address = self._index, self._at(shard)
        rows = self.objects.rows_of(self.objects.place(shard))
        assert index is not None
        try:
            answer = done.result()
        except SourceError as error:
            raise self._about(error, rows) from error
        if answer is None:
            return None
        file = of_version(ObjectVersion.of(address, answer, self.store.cache))
        try:
            return file, index.addresses(bytes(answer.data), file.version.nbytes)
        except ValueError as error:
            raise DamagedChunkError(
                f"the index of a shard must be readable; {error}. Restore the object.",
                path=address.url,
                key=self.objects.key or None,
                **rows,
            ) from error


class RemoteReader(ZarrReader):
    """Chunks of an array in a store, fetched; each object is compared with what it was at first."""

    def __init__(
        self, objects: Objects, missing: Missing | None, opened: dict[str, Any] | None = None
    ) -> None:
        super().__init__(objects, missing, opened)
        self._fetched = _Fetched(objects)
        self._storage = replace(self._storage, table_bytes=self._fetched.table_bytes)

    def check(self) -> None:
        """Do nothing: objects are compared when they come."""

    def soon(self, places: Ints) -> list[Soon]:
        """Return what decoding chunks will take out of the store."""
        return self._fetched.soon(places)

    def read_chunks(self, places: Ints, outs: Sequence[NDArray[Any]]) -> None:
        """Decode chunks; see `oocdata.engines.chunked.ChunkReader`."""
        self._write(places, outs, self._fetched.take(places).__getitem__)
