"""Open HDF5 files with h5py, and translate HDF5's errors.

HDF5's file locking is left on: a locked file is open for writing, and may be inconsistent; and a
file that the user has open with locking can't be opened without.
"""

from __future__ import annotations

import gc
import importlib
import os
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

import numpy as np

from oocdata.engines.files import FileVersion, Version
from oocdata.errors import (
    MissingDependencyError,
    MissingFileError,
    OocdataError,
    SourceError,
    TruncatedFileError,
    UnknownFormatError,
    error_location,
    error_text,
    location_text,
)
from oocdata.formats.paths import is_url, stored_file

if TYPE_CHECKING:
    from oocdata.formats.hdf5.metadata import MetadataStream

FILTERS = {
    1: "gzip",
    2: "shuffle",
    3: "fletcher32",
    4: "szip",
    5: "nbit",
    6: "scaleoffset",
    307: "bzip2",
    32000: "lzf",
    32001: "blosc",
    32004: "lz4",
    32008: "bitshuffle",
    32013: "zfp",
    32015: "zstd",
    32017: "sz",
    32024: "sz3",
    32026: "blosc2",
    32028: "sperr",
}
"""Names of filters by number: HDF5's own below 256, then those of the HDF5 filter registry."""

_METADATA_BYTES = 2 << 20


def hdf5_library() -> Any:
    """Import and return ``h5py``, which is slow to import."""
    import h5py

    return h5py


def hdf5_lock(path: str = "") -> AbstractContextManager[Any]:
    """Return the global, reentrant lock under which h5py calls HDF5.

    If `path` is a URL, garbage collection is off while the lock is held, because HDF5 may then wait
    for the store. h5py takes this lock to destroy its objects, so the thread that fetches, or a
    thread with one of our locks, would deadlock on collecting a cycle with such an object (h5py's
    documentation, "Python file-like objects").
    """
    lock: AbstractContextManager[Any] = hdf5_library()._objects.phil
    return _uncollected(lock) if is_url(path) else lock


_paused = False
"""Whether garbage collection is off until HDF5's lock is released."""


@contextmanager
def _uncollected(lock: AbstractContextManager[Any]) -> Iterator[None]:
    global _paused
    with lock:  # taken first: the lock also guards `_paused`
        was_enabled = gc.isenabled()
        try:
            _paused |= was_enabled
            gc.disable()
            yield
        finally:
            if was_enabled:
                gc.enable()
                _paused = False


def _resume_after_fork() -> None:
    global _paused
    if _paused:  # by a thread that does not exist in the child
        gc.enable()
        _paused = False


os.register_at_fork(after_in_child=_resume_after_fork)


@contextmanager
def translate_errors(path: str, key: str | None = None) -> Iterator[None]:
    """Raise h5py's errors in the block as `UnknownFormatError`: the metadata are damaged.

    Other errors of oocdata pass, with file and dataset added (see `error_location`).
    """
    with error_location(path, key):
        try:
            yield
        except OocdataError:
            raise
        except (OSError, KeyError, ValueError, RuntimeError) as error:
            raise UnknownFormatError(
                f"the HDF5 metadata must be readable; HDF5 says: {error_text(error)}. Was the file "
                "cut short or overwritten?"
            ) from error


def fill_value(dataset: Any, undefined: Any = None) -> Any:
    """Return the value of elements that were never written; `undefined` if the file has none.

    If it says never to write the fill value, HDF5 does not read it either (``H5Pset_fill_time``).
    """
    with suppress(RuntimeError):
        never = hdf5_library().h5d.FILL_TIME_NEVER
        if dataset.id.get_create_plist().get_fill_time() != never:
            return dataset.fillvalue
    return undefined


def fill_bytes(dataset: Any) -> bytes:
    """Return the fill value as the bytes of one stored element; zeros if the file has none."""
    fill = None if dataset.dtype.hasobject else fill_value(dataset)  # none of varying length
    if fill is None:
        return bytes(dataset.id.get_type().get_size())
    return np.array(fill, dataset.dtype).tobytes()


def open_file(path: str, version: Version | None = None) -> Any:
    """Open an ``h5py.File`` for reading; an object in a store in the given `version`."""
    stream = None
    with error_location(path):
        if is_url(path):
            from oocdata.formats.hdf5.metadata import MetadataStream  # the client is slow to import

            stream = MetadataStream(stored_file(path, version))
        try:
            file = hdf5_library().File(stream or path, "r")
        except SourceError:  # raised by the store
            raise
        except FileNotFoundError as error:
            raise MissingFileError("the file must exist; there is none.") from error
        except OSError as error:
            raise _open_error(error) from error
        if stream is not None:
            _streams[_number(file)] = stream
        if file.mode == "r":
            return file
        file.close()  # closes this handle only, not the writer's
        raise SourceError(
            "the file must not be open for writing; this process writes to it, and what is on disk "
            "may be older. Close it, or pass the open dataset: ooc.open(file[key])."
        )


_streams: WeakValueDictionary[int, MetadataStream] = WeakValueDictionary()
"""Open streams by `_number`, because one URL may be open several times."""


def _number(file: Any) -> int:
    """Return HDF5's unique number of an open file."""
    return int(hdf5_library().h5o.get_info(file.id).fileno)


def version_of_open(file: Any) -> Version:
    """Return the version of an open file, even if its path leads to another file by now."""
    if is_url(file.filename):
        return _streams[_number(file)].file.version
    return FileVersion.of(file.filename, os.fstat(file.id.get_vfd_handle()))


def check_open_file(
    version: Version, file: Any, key: str | None = None, rows: Iterable[int] | None = None
) -> None:
    """Raise `SourceError` if an open file no longer has the given version.

    Nothing is fetched for an object: each block of metadata is checked when it is fetched.
    """
    if isinstance(version, FileVersion):
        version.compare(os.fstat(file.id.get_vfd_handle()), key, rows)
    elif version_of_open(file) != version:
        raise SourceError(
            "the object must be as it was when it was opened; it has changed. Open it again.",
            path=version.path,
            key=key,
            rows=rows,
        )


def limit_metadata_cache(file: Any, *, walks: bool = False) -> None:
    """Limit HDF5's metadata cache of an open file, unless the user has the file open too.

    A walk over 10,000 datasets takes 11 MB of memory with the limit and 170 MB without: HDF5's own
    limit of 32 MiB counts bytes as stored. With `walks`, all groups of an object in a store will be
    read, so that their metadata is fetched ahead.
    """
    library = hdf5_library()
    stream = _streams.get(_number(file)) if walks and is_url(file.filename) else None
    if stream is not None:
        stream.walks = True
    if library.h5f.get_obj_count(file.id, library.h5f.OBJ_FILE) == 1:
        limited = file.id.get_mdc_config()
        limited.max_size = limited.initial_size = max(limited.min_size, _METADATA_BYTES)
        limited.set_initial_size = True
        file.id.set_mdc_config(limited)


def _open_error(error: OSError) -> SourceError:
    message = error_text(error)
    if isinstance(error, BlockingIOError) or "already open for write" in message:
        return SourceError(
            f"the file must not be open for writing elsewhere; it is locked ({message}). Close the "
            "writer; if it was killed, h5clear -s. If the file system knows no locks, set "
            "HDF5_USE_FILE_LOCKING=FALSE."
        )
    if "truncated file" in message:
        return TruncatedFileError(
            f"the file must be as long as its superblock says; HDF5 says: {message}. It was cut "
            "short, or its writer is not done."
        )
    if error.errno or "already open for read-only" in message or "flag values" in message:
        return SourceError(f"the file must be readable; HDF5 says: {message}.")
    return UnknownFormatError(
        f"the HDF5 header must be readable; HDF5 says: {message}. Was the file cut short?"
    )


def find_external_file(path: str, name: str, variable: str) -> str | None:
    """Return the path of the file that HDF5 would open for a `name` in the file at `path`, or None.

    The search order is HDF5's (``H5F_prefix_open_file``): the name itself if absolute, then its
    last part in the folders of an environment variable (``HDF5_VDS_PREFIX``, ``HDF5_EXT_PREFIX``),
    in the folder of the file, in the current folder, and in the file's folder after resolving
    symbolic links.
    """
    if is_url(path):
        return None
    candidates = []
    if os.path.isabs(name):
        candidates.append(name)
        name = os.path.basename(name)
    origin = os.path.dirname(os.path.abspath(path))
    prefixes = os.environ.get(variable, "").split(os.pathsep)
    folders = [prefix.replace("${ORIGIN}", origin) for prefix in prefixes if prefix]
    folders += [origin, "", os.path.dirname(os.path.realpath(path))]
    candidates += [os.path.join(folder, name) for folder in folders]
    return next((os.path.abspath(file) for file in candidates if os.path.isfile(file)), None)


def require_filters(filters: Iterable[int], path: str, key: str | None) -> None:
    """Load HDF5's plugins for filters in this process; raise if one is missing.

    Plugins are registered per process, so each process that reads must call this.
    """
    available = hdf5_library().h5z.filter_avail
    numbers = list(filters)
    if not all(map(available, numbers)):
        with suppress(ImportError):
            importlib.import_module("hdf5plugin")
    for number in numbers:
        if not available(number):
            raise MissingDependencyError(
                f"the chunks are encoded with filter {number} ({FILTERS.get(number, 'unknown')}), "
                "which HDF5 has not. Install it: pip install hdf5plugin; a filter that is not in "
                f"that package must be on HDF5_PLUGIN_PATH. [{location_text(path, key)}]"
            )
