"""Read a store of zarr-python that the user opened: memory, fsspec, object stores, wrappers."""

from __future__ import annotations

import sys
from typing import Any, NamedTuple

import zarr
from zarr.abc.store import RangeByteRequest, SuffixByteRequest
from zarr.core.buffer import default_buffer_prototype
from zarr.core.sync import sync
from zarr.storage import MemoryStore

from oocdata.errors import UnknownFormatError
from oocdata.formats.zarr.store import Store, no_writer_warnings


class UserStore(Store):
    """The store of an open ``zarr.Array``; pickling pickles the array, with its store."""

    def __init__(self, array: zarr.Array[Any]) -> None:
        name = str(array.store)
        if "\n" in name:  # `str` of virtualizarr's store is its whole content
            name = object.__repr__(array.store)
        super().__init__(name)
        self.array = array
        # A store in memory is cheap to ask; nothing is known of others.
        self.listable = type(array.store) is MemoryStore

    def __reduce__(self) -> tuple[type[Store], tuple[Any, ...]]:
        return UserStore, (self.array,)

    def metadata(self) -> tuple[bytes, bytes | None]:
        """Return the metadata file of the array, and of version 2 its ``.zattrs``."""
        with no_writer_warnings():
            files = self.array.metadata.to_buffer_dict(default_buffer_prototype())
        if self.array.metadata.zarr_format == 3:
            return bytes(files["zarr.json"].to_bytes()), None
        return bytes(files[".zarray"].to_bytes()), bytes(files[".zattrs"].to_bytes())

    def read(self, name: str, start: int = 0, stop: int | None = None) -> bytes | None:
        """Return the bytes of an object, or a part of them."""
        request: Any = SuffixByteRequest(-start) if start < 0 else None
        if stop is not None:
            request = RangeByteRequest(start, stop)
        found = sync(self.array.store.get(name, default_buffer_prototype(), request))
        return None if found is None else found.to_bytes()

    def locate(self, name: str) -> tuple[Any, int]:
        """Return an object that is read by ranges; its length is not known."""
        return _Object(self, name), sys.maxsize

    def check(self, shape: tuple[int, ...]) -> None:
        """Raise if the user has changed the shape of the array."""
        if self.array.shape != shape:
            raise UnknownFormatError(
                f"the array must have the shape {shape}, as when it was opened; it has "
                f"{self.array.shape}. Open it again.",
                path=self.path,
                key=self.array.path or None,
            )


class _Object(NamedTuple):
    """An object of a store, as an open file."""

    store: UserStore
    name: str
    number: int = -1
    """No descriptor of the kernel."""

    def opened(self) -> _Object:
        return self

    def read(self, offset: int, nbytes: int) -> bytes | None:
        return self.store.read(self.name, offset, offset + nbytes)
