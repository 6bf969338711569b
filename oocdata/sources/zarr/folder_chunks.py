"""Chunks in the files of a folder, read and decoded without TensorStore.

Most arrays are elements in C order, compressed by one codec, one chunk a file or many in a shard.
Reading one is an ``open``, a ``pread`` and a call of the codec, straight into its place: less than
what it costs to ask TensorStore for it, which also can't be used after a fork. Whatever is not
exactly so, an array or a single chunk, is left to TensorStore: absent, cut short, damaged, not as
long as it must be, written anew. So it alone decides what such a chunk reads as, and how an error
is told.
"""

from __future__ import annotations

import json
import os
import threading
from collections import OrderedDict
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from math import inf
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocdata.errors import MissingFileError, SourceError
from oocdata.sources.codecs import decompress, room_for, write_chunk
from oocdata.sources.handles import Descriptor
from oocdata.sources.zarr.codecs import named
from oocdata.sources.zarr.metadata import ArrayMetadata
from oocdata.sources.zarr.store import Folder, join
from oocdata.sources.zarr.stored import StoredArray

__all__ = ["FolderChunks"]

_CODECS = {"zstd": "zstd", "gzip": "gzip", "zlib": "deflate", "blosc": "blosc"}
"""A Zarr codec's name, and imagecodecs'."""

_INDEX_CACHE_BYTES = 8 << 20


@dataclass(frozen=True, slots=True)
class _Encoding:
    """How a chunk's elements became bytes.

    Attributes
    ----------
    stored : numpy.dtype
        With its byte order.
    codec : str
        As imagecodecs names it; empty for none.
    """

    stored: np.dtype[Any]
    codec: str


class _Index:
    """The indices of shards, as long as their files are as they were."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held: OrderedDict[str, tuple[tuple[int, ...], NDArray[np.uint64]]] = OrderedDict()
        self._nbytes = 0

    def get(self, name: str, version: tuple[int, ...]) -> NDArray[np.uint64] | None:
        with self._lock:
            found = self._held.get(name)
            if found is None or found[0] != version:
                return None
            self._held.move_to_end(name)
            return found[1]

    def put(self, name: str, version: tuple[int, ...], addresses: NDArray[np.uint64]) -> None:
        with self._lock:
            old = self._held.pop(name, None)
            self._nbytes += addresses.nbytes - (0 if old is None else old[1].nbytes)
            self._held[name] = version, addresses
            while self._nbytes > _INDEX_CACHE_BYTES and len(self._held) > 1:
                self._nbytes -= self._held.popitem(last=False)[1][1].nbytes


@dataclass(frozen=True, eq=False, slots=True)
class FolderChunks:
    """Chunks of one array in a folder; safe to use from several threads.

    Parameters
    ----------
    folder : str
        Of the array.
    metadata : ArrayMetadata
    encoding : _Encoding
    newest : float
        When the newest of the array's files was written, in nanoseconds since the epoch; infinity
        where that is not known.
    """

    folder: str
    metadata: ArrayMetadata
    encoding: _Encoding
    newest: float
    _indices: _Index = field(default_factory=_Index)

    @classmethod
    def of(cls, stored: StoredArray) -> FolderChunks | None:
        """Return the chunks of an array that can be read so; None for any other."""
        metadata = stored.metadata
        if not isinstance(stored.store, Folder) or 0 in metadata.shape:
            return None
        name = "zarr.json" if metadata.version == 3 else ".zarray"
        text = stored.store.read(join(stored.key, name))
        try:
            node = json.loads(text or b"")
            encoding = _version_2(node) if metadata.version == 2 else _version_3(node, metadata)
        except (KeyError, TypeError, ValueError, AttributeError):
            return None
        if encoding is None or encoding.stored.newbyteorder("=") != metadata.dtype:
            return None
        folder = os.path.join(stored.store.path, stored.key)
        return cls(folder, metadata, encoding, inf if stored.newest is None else stored.newest)

    def read(self, boxes: Sequence[tuple[slice, ...]], outs: Sequence[NDArray[Any]]) -> list[int]:
        """Fill ``outs[i]`` with ``boxes[i]``, each the part of one chunk that lies in the array.

        Returns
        -------
        list of int
            The numbers of those that were not filled, for whatever reason.
        """
        runs = [self._find(box) for box in boxes]
        if len(runs) > 1 and hasattr(os, "posix_fadvise"):
            for run in runs:  # the system fetches the next while one is decoded
                if run is not None:
                    os.posix_fadvise(run[0].number, run[1], run[2], os.POSIX_FADV_WILLNEED)
        memory = room_for(max((run[2] for run in runs if run is not None), default=0))
        left = []
        for number, (run, out) in enumerate(zip(runs, outs, strict=True)):
            if run is None or not self._decode(run, memory, out):
                left.append(number)
        return left

    def _find(self, box: tuple[slice, ...]) -> tuple[Descriptor, int, int] | None:
        """Return an open file, and where in it a chunk lies and how long it is."""
        objects = self.metadata.object_shape
        place = tuple(part.start // step for part, step in zip(box, objects, strict=True))
        name = self.metadata.name(place)
        try:
            opened = Descriptor(f"{self.folder}/{name}")
        except (MissingFileError, SourceError):
            return None
        status = os.fstat(opened.number)
        # Writers rename a new file into place: what is open stays what it is.
        if status.st_mtime_ns > self.newest:
            return None
        if not self.metadata.sharded:
            return opened, 0, status.st_size
        version = status.st_ino, status.st_mtime_ns, status.st_size
        addresses = self._indices.get(name, version)
        if addresses is None:
            addresses = self._read_index(opened, status.st_size)
            if addresses is None:
                return None
            self._indices.put(name, version, addresses)
        inner = tuple(
            part.start % whole // step
            for part, whole, step in zip(box, objects, self.metadata.chunk_shape, strict=True)
        )
        offset, nbytes = (int(number) for number in addresses[inner])
        # All ones, for a chunk that is not there, reaches beyond every file.
        return (opened, offset, nbytes) if offset + nbytes <= status.st_size else None

    def _read_index(self, opened: Descriptor, size: int) -> NDArray[np.uint64] | None:
        index = self.metadata.shard_index
        if index is None:
            return None
        first = max(0, size - index.nbytes) if index.at_end else 0
        try:
            return index.parse(os.pread(opened.number, index.nbytes, first))
        except (OSError, ValueError, ImportError):  # damaged, or nothing here to check it
            return None

    def _decode(
        self, run: tuple[Descriptor, int, int], memory: memoryview, out: NDArray[Any]
    ) -> bool:
        opened, offset, nbytes = run
        data, done = memory[:nbytes], 0
        while done < nbytes:  # one call reads 2 GiB at most
            with suppress(OSError):
                got = os.preadv(opened.number, [data[done:]], offset + done)
                done += got
                if got:
                    continue
            return False
        try:
            write_chunk(out, self.encoding.stored, self.metadata.chunk_shape, self._undo(data))
        except (ValueError, RuntimeError):
            return False
        return True

    def _undo(self, data: memoryview) -> Any:
        def undo(target: NDArray[np.uint8]) -> None:
            if self.encoding.codec:
                decompress(self.encoding.codec, data, target)
            elif len(data) != len(target):
                raise ValueError(f"it holds {len(data)} bytes, not {len(target)}")
            else:
                target[...] = np.frombuffer(data, np.uint8)

        return undo


def _version_2(node: dict[str, Any]) -> _Encoding | None:
    if node["order"] != "C" or node["filters"]:
        return None
    compressor = node["compressor"]
    codec = "" if compressor is None else _CODECS.get(compressor["id"])
    return None if codec is None else _Encoding(np.dtype(node["dtype"]), codec)


def _version_3(node: dict[str, Any], metadata: ArrayMetadata) -> _Encoding | None:
    steps = [named(codec) for codec in node["codecs"]]
    if metadata.sharded:
        if len(steps) != 1 or steps[0][0] != "sharding_indexed" or metadata.shard_index is None:
            return None
        steps = [named(codec) for codec in steps[0][1]["codecs"]]
    names = [name for name, _ in steps]
    if names[:1] != ["bytes"] or len(names) > 2:
        return None
    codec = _CODECS.get(names[1]) if len(names) == 2 else ""
    order = steps[0][1].get("endian")
    if codec is None or (order not in ("little", "big") and metadata.dtype.itemsize > 1):
        return None
    stored = metadata.dtype.newbyteorder(">" if order == "big" else "<")
    return _Encoding(stored, codec)
