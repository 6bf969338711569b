"""Opening HDF5 files and datasets: what h5py says, as this package's errors.

Files are opened with HDF5's own locking left as it is. A lock means that a writer has the file
open, and what is on disk is then no consistent file (without the lock, HDF5 stops at a damaged
header, or doesn't). A file opened without locking also can't be shared with one that the user has
open in the same process: HDF5 refuses to mix the two.
"""

from __future__ import annotations

import errno
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
    concerning,
    place,
)
from oocdata.formats.stored import is_url, stored_file

if TYPE_CHECKING:
    from oocdata.formats.hdf5.metadata import MetadataStream

__all__ = [
    "FILTERS", "compare_open", "fill_value", "find_beside", "hdf5_library", "hdf5_lock",
    "little_metadata", "open_file", "readable", "require_filters", "said", "unwritten",
    "version_of_open",
]  # fmt: skip

FILTERS = {
    1: "gzip",
    2: "shuffle",
    3: "fletcher32",
    4: "szip",
    5: "nbit",
    6: "scaleoffset",
    305: "lzo",
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
"""Names of filters: the library's own below 256, registered ones above (HDF5 filter registry)."""

_METADATA_BYTES = 2 << 20


def hdf5_library() -> Any:
    """Return the module ``h5py``, which takes long to import."""
    import h5py

    return h5py


def hdf5_lock(path: str = "") -> AbstractContextManager[Any]:
    """Return the one lock under which h5py calls HDF5, which a thread may take again.

    Give the path where HDF5 may read from a store. Then no garbage is collected meanwhile: h5py
    takes this lock to end its objects. A thread that fetches, or one that has a lock of ours, would
    wait for it for ever if it came to collect a cycle with such an object (h5py's documentation,
    "Python file-like objects").
    """
    lock: AbstractContextManager[Any] = hdf5_library()._objects.phil
    return _uncollected(lock) if is_url(path) else lock


_paused = False
"""Whether Python's collector is off until HDF5's lock is given back."""


@contextmanager
def _uncollected(lock: AbstractContextManager[Any]) -> Iterator[None]:
    global _paused
    with lock:  # first: one thread at a time changes it
        collects = gc.isenabled()
        try:
            _paused |= collects
            gc.disable()
            yield
        finally:
            if collects:
                gc.enable()
                _paused = False


def _resume_after_fork() -> None:
    global _paused
    if _paused:  # by a thread that is not here
        gc.enable()
        _paused = False


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_resume_after_fork)


@contextmanager
def readable(path: str, key: str | None = None) -> Iterator[None]:
    """Turn what h5py raises over damaged metadata into a clear error; see `concerning`."""
    try:
        with concerning(path, key):
            yield
    except OocdataError:
        raise
    except (OSError, KeyError, ValueError, RuntimeError) as error:
        raise UnknownFormatError(
            f"the HDF5 metadata must be readable; HDF5 says: {said(error)}. Was the file cut short "
            "or overwritten?",
            path=path,
            key=key,
        ) from error


def said(error: BaseException) -> str:
    """Return an h5py error's own words, without the quotes of KeyError and a final full stop."""
    return str(error.args[-1] if error.args else error).rstrip(".")


def fill_value(dataset: Any, undefined: Any = None) -> Any:
    """Return what was never written reads as, or `undefined` where the file doesn't say."""
    try:
        return dataset.fillvalue
    except RuntimeError:
        return undefined


def unwritten(dataset: Any) -> bytes:
    """Return one number as stored, as which reads what was never written."""
    if dataset.dtype.hasobject:  # of rows of varying length: none
        return bytes(dataset.id.get_type().get_size())
    return np.array(fill_value(dataset, undefined=0), dataset.dtype).tobytes()


def open_file(path: str, version: Version | None = None) -> Any:
    """Open an ``h5py.File`` for reading; of an object in a store, that version if one is given."""
    with concerning(path):
        stream = _stream(path, version) if is_url(path) else None
        try:
            file = hdf5_library().File(stream or path, "r")
        except SourceError:  # of a store
            raise
        except FileNotFoundError as error:
            raise MissingFileError("the file must exist; there is none.") from error
        except OSError as error:
            raise _why(error) from error
        if stream is not None:
            _streams[_number(file)] = stream
        if file.mode == "r":
            return file
        file.close()  # of what the writer has open, it is only another handle
        raise SourceError(
            "the file must not be open for writing; this process writes to it, and what is on disk "
            "may be older. Close it, or pass the open dataset: ooc.open(file[key])."
        )


def _stream(url: str, version: Version | None) -> MetadataStream:
    """Return the bytes of an object in a store, fetched in blocks as HDF5 asks for them."""
    from oocdata.formats.hdf5.metadata import MetadataStream  # the client takes long to import

    return MetadataStream(stored_file(url, version))


_streams: WeakValueDictionary[int, MetadataStream] = WeakValueDictionary()
"""The streams of objects that are open, by `_number`: one URL may be open several times."""


def _number(file: Any) -> int:
    """Return the number by which HDF5 tells an open file from all others."""
    return int(hdf5_library().h5o.get_info(file.id).fileno)


def version_of_open(file: Any) -> Version:
    """Return the version of an open file: not of what may have replaced it at its path since."""
    if is_url(file.filename):
        return _streams[_number(file)].file.version
    return FileVersion.of(file.filename, os.fstat(file.id.get_vfd_handle()))


def compare_open(
    version: Version, file: Any, key: str | None = None, rows: Iterable[int] | None = None
) -> None:
    """Raise `SourceError` if an open file is another version.

    Of an object, each block of its metadata is compared when it is fetched.
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


@contextmanager
def little_metadata(file: Any) -> Iterator[None]:
    """Have HDF5 keep little of the metadata of an open file in memory: its walk is over soon.

    Looking at 10,000 datasets takes it 170 MB of memory otherwise, and 11 MB so.
    """
    stream = _streams.get(_number(file)) if is_url(file.filename) else None
    if stream is not None:
        stream.walks = True
    before, little = file.id.get_mdc_config(), file.id.get_mdc_config()
    little.max_size = little.initial_size = max(little.min_size, _METADATA_BYTES)
    little.set_initial_size = True
    file.id.set_mdc_config(little)
    try:
        yield
    finally:
        file.id.set_mdc_config(before)


def _why(error: OSError) -> SourceError:
    words = said(error)
    if isinstance(error, BlockingIOError) or "already open for write" in words:
        return SourceError(
            f"the file must not be open for writing elsewhere; it is locked ({words}). Close the "
            "writer, or copy the file. If its writer was killed: h5clear -s. If the file system "
            "knows no locks and nobody writes: set HDF5_USE_FILE_LOCKING=FALSE."
        )
    if error.errno == errno.EMFILE:
        return SourceError(
            "the process must be allowed to open one more file; it is not. Raise the limit "
            "(ulimit -n)."
        )
    if "truncated file" in words:
        return TruncatedFileError(
            f"the file must be as long as its superblock says; HDF5 says: {words}. It was cut "
            "short, or its writer is not done."
        )
    if error.errno or "already open for read-only" in words or "flag values" in words:
        return SourceError(f"the file must be readable; HDF5 says: {words}.")
    return UnknownFormatError(
        f"the HDF5 header must be readable; HDF5 says: {words}. Was the file cut short or "
        "overwritten?"
    )


def find_beside(own: str, name: str, variable: str) -> str | None:
    """Return the file that HDF5 would open for a name inside another file, `own`, or None.

    The order of search is HDF5's (``H5F_prefix_open_file``): the name itself if absolute, then its
    last part; the folders of an environment variable (``HDF5_VDS_PREFIX``, ``HDF5_EXT_PREFIX``);
    the folder of the file; the current folder; the folder where the file lies once symbolic links
    are resolved.
    """
    if is_url(own):
        return None
    tries = []
    if os.path.isabs(name):
        tries.append(name)
        name = os.path.basename(name)
    origin = os.path.dirname(os.path.abspath(own))
    prefixes = os.environ.get(variable, "").split(os.pathsep)
    folders = [prefix.replace("${ORIGIN}", origin) for prefix in prefixes if prefix]
    folders += [origin, "", os.path.dirname(os.path.realpath(own))]
    tries += [os.path.join(folder, name) for folder in folders]
    return next((os.path.abspath(path) for path in tries if os.path.isfile(path)), None)


def require_filters(filters: Iterable[int], path: str, key: str | None) -> None:
    """Make sure that HDF5 can decode these filters in this process.

    Plugins register with the HDF5 library of one process, so every process that reads asks again.
    """
    available = hdf5_library().h5z.filter_avail
    lacking = [number for number in filters if not available(number)]
    if lacking:
        with suppress(ImportError):
            importlib.import_module("hdf5plugin")
    for number in lacking:
        if available(number):
            continue
        name = FILTERS.get(number, "unknown")
        raise MissingDependencyError(
            f"the chunks are encoded with filter {number} ({name}), which HDF5 must have; "
            "it has not. Install it: pip install hdf5plugin; one that is not among "
            f"those must lie on HDF5_PLUGIN_PATH. [{place(path, key)}]"
        )
