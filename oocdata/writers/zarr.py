"""Write Zarr v3 arrays by zarr-python, a shard or chunk at a time."""

from __future__ import annotations

import os
from contextlib import closing
from glob import escape, glob
from typing import Any

from numpy.typing import NDArray

from oocdata.engines.atomic import sync_file, write_errors
from oocdata.threads import Threads, in_threads
from oocdata.writers.disk import sync_folders
from oocdata.writers.storage import Place, units_of
from oocdata.writers.target import Codec, Target


class ZarrStorage:
    """An array in a folder, at its root or in a group."""

    def __init__(self, target: Target, path: str, *, done: int = 0) -> None:
        import zarr

        self._target = target
        self._path = os.path.abspath(path)
        self._folder = os.path.join(self._path, target.key) if target.key else self._path
        store = zarr.storage.LocalStore(self._path)  # zarr takes a path with "::" for a URL
        if done:
            for left in glob(f"{escape(self._folder)}/**/*.partial", recursive=True):
                os.unlink(left)  # of a process that was killed while zarr wrote a file
            array = zarr.open_array(store, path=target.key or "", mode="r+")
        else:
            array = _created(target, store)
        # A chunk that holds only the fill value would be left out, and look as if it were lost.
        self._array = array.with_config({"write_empty_chunks": True})
        # zarr goes on writing after Ctrl-C. A thread can be waited for, and one at a time leaves no
        # other chunk in flight after an error: a file that failed is cleared away.
        self._thread = Threads(1, "oocdata-zarr")
        self._written: list[str] = []

    def write(self, first: int, values: NDArray[Any]) -> None:
        """Write rows, with one file for each of their shards or chunks."""
        stop = first + len(values)
        with write_errors(self._folder):
            os.stat(self._folder)  # raises if it was deleted: zarr would make it again
            if stop > self._array.shape[0]:
                self._array.resize((stop, *self._target.element))
            in_threads(self._thread, self._write_unit, units_of(first, values, self._target.unit))

    def _write_unit(self, unit: tuple[Place, NDArray[Any]]) -> None:
        place, values = unit
        starts = (n * step for n, step in zip(place, self._target.unit, strict=True))
        box = tuple(slice(n, n + size) for n, size in zip(starts, values.shape, strict=True))
        self._array[box] = values
        self._written.append(os.path.join(self._folder, "c", *map(str, place)))

    def save(self) -> None:
        """Flush every written file, and the folders with their names, to the disk."""
        names, self._written = self._written, []
        folders = {self._folder}
        for name in names:  # a new folder's name is stored in its parent, which is flushed too
            folder = os.path.dirname(name)
            while folder not in folders:
                folders.add(folder)
                folder = os.path.dirname(folder)
        with write_errors(self._folder):
            for name in (*names, *folders):
                sync_file(name)

    def close(self, rows: int) -> None:
        """Flush the array, of so many rows, to the disk."""
        with closing(self._thread), write_errors(self._folder):
            if rows != self._array.shape[0]:
                self._array.resize((rows, *self._target.element))
            self.save()
            sync_folders(self._path)

    def abandon(self) -> None:
        """End the thread."""
        self._thread.close()


def _created(target: Target, store: Any) -> Any:
    """Write the metadata of the array, and of the groups above it; return the array."""
    import zarr

    return zarr.create_array(
        store,
        name=target.key,
        shape=target.shape,
        dtype=target.dtype,
        chunks=target.chunks or "auto",
        shards=target.shards,
        compressors=_codec(target.codec, target.dtype.itemsize),
        fill_value=target.dtype.type(target.fill_value or 0),
        attributes=dict(target.attributes),
        dimension_names=target.dimension_names,
        zarr_format=3,
    )


def _codec(codec: Codec, itemsize: int) -> Any:
    """Return a codec of zarr-python, or None for no compression."""
    from zarr.codecs import BloscCodec, GzipCodec, ZstdCodec

    if codec.name == "none":
        return None
    if codec.name in ("gzip", "zstd"):
        return (GzipCodec if codec.name == "gzip" else ZstdCodec)(level=codec.level)
    cname: Any = codec.name.removeprefix("blosc-")
    return BloscCodec(cname=cname, clevel=codec.level, shuffle="shuffle", typesize=itemsize)
