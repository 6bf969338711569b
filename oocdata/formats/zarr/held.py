"""A store of zarr-python that the user opened: memory, fsspec, object stores, wrappers."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from oocdata.formats.zarr.store import Status

if TYPE_CHECKING:
    import zarr

    from oocdata.engines.files import FileVersion

__all__ = ["Held", "calm", "metadata_of"]


class Held:
    """The store of an open ``zarr.Array``; pickling pickles the array, with what it holds.

    Parameters
    ----------
    array : zarr.Array
    """

    versioned = False

    def __init__(self, array: zarr.Array[Any]) -> None:
        self.array = array

    @property
    def path(self) -> str:
        """For messages."""
        return str(self.array.store)

    @property
    def listable(self) -> bool:
        """Asking a store in memory is cheap; of any other nothing is known."""
        from zarr.storage import MemoryStore

        return type(self.array.store) is MemoryStore

    def read(self, name: str) -> bytes | None:
        """Return the bytes of an object; None where there is none."""
        return self._get(name, None)

    def read_part(self, name: str, start: int | None, nbytes: int) -> bytes | None:
        """Return `nbytes` from `start`, or from the end if `start` is None."""
        from zarr.abc.store import RangeByteRequest, SuffixByteRequest

        if start is None:
            return self._get(name, SuffixByteRequest(nbytes))
        return self._get(name, RangeByteRequest(start, start + nbytes))

    def status(self, name: str) -> Status | None:
        """Return what is known of an object; None where there is none."""
        from zarr.core.sync import sync

        if not self.listable:
            # Its size may cost reading it: one byte passes every check that needs no size.
            return Status(1, 1) if sync(self.array.store.exists(name)) else None
        whole = self.read(name)
        return None if whole is None else Status(len(whole), 1)

    def file(self, name: str) -> FileVersion | None:
        """Return None: an object has no file."""
        return None

    def kvstore(self, key: str) -> Any:
        """Refuse: TensorStore opens places, not objects."""
        raise NotImplementedError("a store object is read by zarr-python")

    def zarr_store(self) -> Any:
        """Return the store itself."""
        return self.array.store

    def _get(self, name: str, part: Any) -> bytes | None:
        from zarr.core.buffer import default_buffer_prototype
        from zarr.core.sync import sync

        found = sync(self.array.store.get(name, default_buffer_prototype(), part))
        return None if found is None else found.to_bytes()


def metadata_of(array: zarr.Array[Any]) -> bytes:
    """Return the metadata of an open array as its store would keep it."""
    from zarr.core.buffer import default_buffer_prototype

    with calm():
        files = array.metadata.to_buffer_dict(default_buffer_prototype())
    name = ".zarray" if array.metadata.zarr_format == 2 else "zarr.json"
    return bytes(files[name].to_bytes())


@contextmanager
def calm() -> Iterator[None]:
    """Silence warnings that are for writers: codecs outside the specification, slow shards."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Numcodecs codecs are not in the Zarr version 3")
        warnings.filterwarnings("ignore", message="Combining a `sharding_indexed` codec disables")
        # An empty list of filters is what the older zarr-python wrote.
        warnings.filterwarnings("ignore", message="Found an empty list of filters in the array")
        yield
