"""Read Zarr hierarchies in object stores and behind HTTP.

Stored chunks are fetched within the link's bound on requests. Of shards, only the chunks that are
read are fetched, by their addresses in the shard's index.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from contextlib import closing
from functools import partial
from math import prod
from typing import Any, NoReturn
from weakref import WeakValueDictionary

import numpy as np
from numpy.typing import NDArray

from oocdata.box import Ints
from oocdata.engines.files import Version
from oocdata.engines.prefetch import Fetch
from oocdata.errors import DamagedChunkError, SourceError
from oocdata.formats.patterns import Missing
from oocdata.formats.zarr.objects import Objects
from oocdata.formats.zarr.rewritten import MetadataFile
from oocdata.formats.zarr.shards import Shard, ShardReader
from oocdata.formats.zarr.store import Store
from oocdata.stores.address import Address, list_names
from oocdata.stores.answers import Answer, ForbiddenError
from oocdata.stores.files import file_of_version
from oocdata.stores.link import link
from oocdata.stores.objects import StoredObjects
from oocdata.stores.user_stores import check_sendable, is_user_store
from oocdata.stores.versions import ObjectVersion, cache_folder, fetch_small, version_number
from oocdata.threads import fork_safe


class Remote(Store):
    """A Zarr hierarchy at a URL."""

    is_remote = True
    versioned = True

    def __init__(self, path: str, cache: str | None = None) -> None:
        super().__init__(path)
        self.cache = cache_folder() if cache is None else cache
        if is_user_store(path):  # the name may mean another store in another process
            self.cache = ""
        self.address = Address.of(path)
        self._metadata: dict[str, Answer | None] = {}

    def __reduce__(self) -> tuple[type[Store], tuple[Any, ...]]:
        check_sendable(self.path)
        return Remote, (self.path, self.cache)

    def prefetch(self, names: Sequence[str]) -> None:
        """Request metadata files at once, each only once."""
        forbidden: SourceError | None = None
        new = [name for name in names if name not in self._metadata]
        answers = fetch_small([self.address / name for name in new])
        for name, found in zip(new, answers, strict=True):
            if isinstance(found, SourceError) and not isinstance(found, ForbiddenError):
                raise found
            self._metadata[name] = found if isinstance(found, Answer) else None
            forbidden = found if isinstance(found, ForbiddenError) else forbidden
        if forbidden is not None and not any(self._metadata.values()):
            raise forbidden

    def read(self, name: str, start: int = 0, stop: int | None = None) -> bytes | None:
        """Return the bytes of a metadata file, or a part of them."""
        self.prefetch([name])
        found = self._metadata[name]
        return None if found is None else bytes(found.data)[start:stop]

    def file(self, name: str) -> Version | None:
        """Return the version of a metadata file."""
        self.prefetch([name])
        found = self._metadata[name]
        return None if found is None else ObjectVersion.of(self.address / name, found, self.cache)

    def folders(self, key: str) -> list[str] | None:
        """Return the names of the folders in a folder; None if the store can't list."""
        if self.address.root.startswith("http"):
            return None
        return [name for name, is_folder in list_names(self.address / key) if is_folder]


class RemoteReader(ShardReader):
    """Reader of chunks in a store; each object must stay the version that was read first."""

    def __init__(
        self, objects: Objects, missing: Missing | None, opened: dict[str, Any] | None = None
    ) -> None:
        super().__init__(objects, missing, opened)
        self._content = objects.store.read(self._metadata)
        self._begin()

    def _begin(self) -> None:
        """Make what each process has of its own: indices and objects in flight."""
        objects, metadata, store = self.objects, self.objects.metadata, self.objects.store
        assert isinstance(store, Remote)
        assert isinstance(self.file, ObjectVersion)
        assert self._content is not None
        address = Address.of(store.path) / objects.key
        self._array = store.path, store.cache, objects.key, objects.axis, self.missing, self.file

        def address_of(number: int) -> Address:  # without `self`: no reference cycle
            return address / metadata.name(objects.place(number))

        self._address = address_of
        self._lock = fork_safe(threading.Lock())
        self._indices: dict[int, Future[Shard | None]] = {}
        self._described = MetadataFile(objects, self.file, self._content)
        self._whole = StoredObjects(
            address_of,
            objects.known,
            self._described.expect,
            # Uncompressed, an upper limit: else answers could exceed the bound.
            prod(metadata.object_shape) * metadata.dtype.itemsize,
            store.cache,
        )

    def __getstate__(self) -> dict[str, Any]:
        own = ("_address", "_lock", "_indices", "_whole", "_described")
        return {name: value for name, value in self.__dict__.items() if name not in own}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._begin()

    def check(self) -> None:
        """Raise if the array was rewritten; see `oocdata.formats.zarr.rewritten`.

        The version of each object is compared on arrival.
        """
        self._described.check()

    def fetches(self, places: Ints) -> list[Fetch]:
        """Describe the objects or ranges that decoding chunks will read."""
        self._end_sharing()
        numbers = self.objects.object_numbers(places)
        if self._index is None:
            return self._whole.fetches(numbers) + self._described.fetches(numbers)
        ranges = [
            one
            for file, runs in self._located(places)
            for one in file.fetches(*np.array(runs).T[1:])
        ]
        return ranges + self._described.fetches(numbers)

    def read_chunks(self, places: Ints, outs: Sequence[NDArray[Any]]) -> None:
        """Decode chunks; see `oocdata.engines.chunked.ChunkReader`."""
        self._end_sharing()
        numbers = self.objects.object_numbers(places)
        self._described.decoding(numbers)
        if self._index is not None:
            super().read_chunks(places, outs)
            return
        with closing(self._whole.take(numbers)) as stored:
            self._write(places, outs, stored)

    def _failed(self, error: Exception, places: Ints) -> NoReturn:
        # A chunk that came and is of a newer array is not damaged.
        if not isinstance(getattr(error, "cause", None) or error, SourceError):
            self._described.compare()
        super()._failed(error, places)

    def _end_sharing(self) -> None:
        """Have arrays that are opened from now on read by another reader; see `remote_reader`."""
        if _unread.get(self._array) is self:
            _unread.pop(self._array, None)

    def _shards_of(self, numbers: Sequence[int]) -> Iterator[Shard | None]:
        """Yield shards, whose indices are requested together; None for an absent one."""
        most = self._most_indices()
        for at in range(0, len(numbers), most):
            yield from self._requested(numbers[at : at + most])

    def _requested(self, numbers: Sequence[int]) -> list[Shard | None]:
        with self._lock:  # threads share their requests
            known = {number: self._indices[number] for number in numbers if number in self._indices}
            if len(self._indices) + len(numbers) - len(known) > self._most_indices():
                self._indices = known
            for number in numbers:
                if number not in self._indices:
                    self._indices[number] = link().start(partial(self._index_of, number))
            requests = [(number, self._indices[number]) for number in numbers]
        found = []
        for number, done in requests:
            try:
                found.append(link().wait(done))
            except Exception as error:
                with self._lock:  # so that the next read requests it again
                    if self._indices.get(number) is done:
                        del self._indices[number]
                if isinstance(error, SourceError):
                    self._failed(error, self.objects.chunks(self.objects.place(number)))
                raise
        return found

    async def _index_of(self, shard: int) -> Shard | None:
        """Fetch the index of a shard; return its file and chunk addresses, None if absent."""
        index, address, store = self._index, self._address(shard), self.objects.store
        assert index is not None
        assert isinstance(store, Remote)
        answer = await link().get(address, *index.part, missing_ok=True)
        found: Shard | None = None
        if answer is not None:
            file = file_of_version(ObjectVersion.of(address, answer, store.cache))
            try:
                found = file, index.addresses(bytes(answer.data), file.version.nbytes)
            except ValueError as error:
                raise DamagedChunkError(
                    f"the index of a shard must be readable; {error}. Restore the object.",
                    path=address.url,
                ) from error
        self._described.expect(shard, version_number(answer))
        return found


_unread: WeakValueDictionary[tuple[Any, ...], RemoteReader] = WeakValueDictionary()
"""The readers that have read no object yet."""


def remote_reader(
    objects: Objects, missing: Missing | None, opened: dict[str, Any] | None
) -> RemoteReader:
    """Return the reader of an array, the same one each time until it reads an object.

    So an array that is opened twice is fetched and cached once. Whoever opens it later expects the
    objects as they are then; others may have been read, and cached, before.
    """
    reader = RemoteReader(objects, missing, opened)
    found = _unread.setdefault(reader._array, reader)
    return found if found.objects.metadata == objects.metadata else reader
