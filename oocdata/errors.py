"""Everything oocdata raises on purpose, as one tree.

::

    OocdataError
    ├── ArgumentError (ValueError)            a call's argument breaks its rule
    │   └── EmptyError                        what is asked for would hold no element
    ├── PositionError (IndexError)            a position or row that does not exist
    ├── MissingDependencyError (ImportError)  an optional package is needed
    ├── MapError (ValueError)                 a mapped function does not keep its promise
    ├── DescriptionError (ValueError)         a loader can't be told as JSON, or read from it
    ├── DatasetGoneError (RuntimeError)       a front-end was used after its dataset went away
    ├── RestoreError (ValueError)             a saved position does not belong to this training
    ├── ServiceError (ConnectionError)        a cluster of readers that does not answer
    ├── WorkerError (RuntimeError)            a worker process ended, or hung, before it was done
    ├── MissingChunkWarning (UserWarning)     absent Zarr chunks are read as the fill value
    ├── MissingPartnerWarning (UserWarning)   a join leaves out elements that have no partner
    ├── CacheFolderWarning (UserWarning)      what is fetched can't be kept any more
    └── SourceError (OSError)                 what storage holds cannot be delivered
        ├── MissingFileError (FileNotFoundError)
        ├── MissingKeyError (KeyError)        no such dataset in the file
        ├── SeveralDatasetsError (ValueError) a key is needed to choose one
        ├── UnknownFormatError (ValueError)   not a format oocdata opens
        ├── UnsupportedDtypeError (TypeError) e.g. object arrays
        ├── CompressedMemberError (ValueError) a compressed .npz member beyond the cache
        ├── MismatchedPartsError (ValueError) files that do not make one array
        ├── TruncatedFileError (EOFError)     fewer bytes than the header promises
        ├── TrailingBytesError (ValueError)   more bytes than the header promises
        ├── ExternalDataError (PermissionError) the data lies in other files
        ├── MissingChunkError (LookupError)   a chunk never written, or lost
        ├── DamagedChunkError (ValueError)    bytes that do not decode
        ├── ChecksumError (ValueError)        rows that are not what their manifest says
        └── ManifestError (ValueError)        no manifest, a damaged one, or one of other data

Every class is also the builtin in brackets, so that ``except FileNotFoundError`` works as expected.
A message says what must hold, what came, and one hint. Names of arguments stand in backticks, or
before an equals sign: so the command line finds them (`arguments_named`), to name its options.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sized
from contextlib import contextmanager
from functools import partial
from itertools import islice
from typing import Any

__all__ = [
    "ArgumentError", "CacheFolderWarning", "ChecksumError", "CompressedMemberError",
    "DamagedChunkError", "DatasetGoneError", "DescriptionError", "EmptyError", "ExternalDataError",
    "ManifestError", "MapError", "MismatchedPartsError", "MissingChunkError",
    "MissingChunkWarning", "MissingDependencyError", "MissingFileError", "MissingKeyError",
    "MissingPartnerWarning", "OocdataError", "PositionError", "RestoreError", "ServiceError",
    "SeveralDatasetsError", "SourceError", "TrailingBytesError", "TruncatedFileError",
    "UnknownFormatError", "UnsupportedDtypeError", "WorkerError",
]  # fmt: skip

_ROWS_SHOWN = 8
_ROWS_KEPT = 1000


def arguments_named(message: str) -> tuple[str, ...]:
    """Return the arguments that a message names, each once, in order.

    Examples
    --------
    >>> arguments_named("`rows` must be left out with `count`; got 3. Try fill=True, or `.map`.")
    ('rows', 'count', 'fill')
    """
    names = re.finditer(r"`([a-z_]+)`|\b([a-z_]+)=", message)
    return tuple(dict.fromkeys(name[1] or name[2] for name in names))


class OocdataError(Exception):
    """The root: catches everything that oocdata raises on purpose."""

    @property
    def arguments(self) -> tuple[str, ...]:
        """The arguments of the call that the message names."""
        return arguments_named(str(self))


class ArgumentError(OocdataError, ValueError):
    """A call's argument breaks its rule; raised at the call, before anything is read."""


class EmptyError(ArgumentError):
    """What is asked for would hold no element at all."""


class PositionError(OocdataError, IndexError):
    """A position within a dataset, or a row in storage, that does not exist."""


class MissingDependencyError(OocdataError, ImportError):
    """An optional package is needed; the message gives the command that installs it."""


class MapError(OocdataError, ValueError):
    """A function given to ``map`` returned something other than its ``spec``."""


class DescriptionError(OocdataError, ValueError):
    """A loader can't be described, or can't be made from a description."""


class DatasetGoneError(OocdataError, RuntimeError):
    """A TensorFlow iterator outlived the dataset that it reads through."""


class ServiceError(OocdataError, ConnectionError):
    """The dispatcher of a cluster of readers does not answer."""


class WorkerError(OocdataError, RuntimeError):
    """A worker process ended, or hung, before the steps it was to read were done.

    Parameters
    ----------
    message : str
        What must hold, what came, and one hint.
    pid : int, optional
        The process.
    exit_code : int, optional
        What it ended with; None if it was ended by a signal.
    signal : str, optional
        The signal that ended it, e.g. ``"SIGKILL"``; None if it ended by itself.
    epoch, step : int, optional
        The first step it was to read.

    Examples
    --------
    >>> error = WorkerError("a worker must live.", pid=7, signal="SIGKILL", epoch=0, step=3)
    >>> error.pid, error.signal, error.step
    (7, 'SIGKILL', 3)
    """

    def __init__(
        self,
        message: str,
        *,
        pid: int | None = None,
        exit_code: int | None = None,
        signal: str | None = None,
        epoch: int | None = None,
        step: int | None = None,
    ) -> None:
        super().__init__(message)
        self.pid, self.exit_code, self.signal = pid, exit_code, signal
        self.epoch, self.step = epoch, step


class MissingChunkWarning(OocdataError, UserWarning):  # noqa: N818  # a warning, no error
    """Chunks of a Zarr array are absent, and are read as its fill value; told once an array."""


class MissingPartnerWarning(OocdataError, UserWarning):  # noqa: N818  # a warning, no error
    """A join leaves out elements that have no partner; the message says how many."""


class CacheFolderWarning(OocdataError, UserWarning):  # noqa: N818  # a warning, no error
    """A cache folder can't be written any more; what it lacks is fetched whenever it is needed."""


class RestoreError(OocdataError, ValueError):
    """What was saved belongs to other data, another description or model, or is damaged."""


class SourceError(OocdataError, OSError):
    """What storage holds can't be delivered.

    Parameters
    ----------
    message : str
        What must hold, what came, and one hint.
    path : str, optional
        The file, kept as an attribute and named in the message.
    key : str, optional
        The dataset inside the file, kept as an attribute and named in the message.
    rows : iterable of int, optional
        The rows concerned; the first thousand are kept as a tuple, the first eight are named in the
        message. A range or an array costs no more than that, however long it is.
    count : int, optional
        How many rows are concerned, where `rows` holds only the first of them.

    Examples
    --------
    >>> print(TruncatedFileError("the file must hold 80 bytes; got 64.", path="a.npy", rows=[7, 9]))
    the file must hold 80 bytes; got 64. [file 'a.npy', rows 7, 9]
    """

    def __init__(
        self,
        message: str,
        *,
        path: str | None = None,
        key: str | None = None,
        rows: Iterable[int] | None = None,
        count: int | None = None,
    ) -> None:
        self.message = message
        self.path = path
        self.key = key
        self.rows: tuple[int, ...] | None = None
        self.count = count
        if rows is not None:
            self.concern(rows)
        super().__init__(message)

    def concern(self, rows: Iterable[int]) -> None:
        """Note the rows concerned; see the parameter `rows`."""
        found = rows if isinstance(rows, Sized) else list(rows)
        self.rows = tuple(int(row) for row in islice(found, _ROWS_KEPT))
        self.count = max(len(found), self.count or 0)

    def __str__(self) -> str:
        where = place(self.path, self.key, self.rows, self.count)
        return f"{self.message} [{where}]" if where else self.message

    def __reduce__(self) -> tuple[Any, ...]:
        # OSError's own __reduce__ would lose the keywords when a worker process sends the error.
        where = {name: getattr(self, name) for name in ("path", "key", "rows", "count")}
        return (partial(type(self), **where), (self.message,))


@contextmanager
def concerning(path: str | None, key: str | None = None) -> Iterator[None]:
    """Name file and dataset in an error of storage that is raised in a block without them.

    Examples
    --------
    >>> with concerning("a.h5", "/u"):
    ...     raise SourceError("rows must be there; some are not.")
    Traceback (most recent call last):
    oocdata.errors.SourceError: rows must be there; some are not. [file 'a.h5', dataset '/u']
    """
    try:
        yield
    except SourceError as error:
        error.path, error.key = error.path or path, error.key or key
        raise


def place(
    path: str | None,
    key: str | None = None,
    rows: Collection[int] | None = None,
    count: int | None = None,
) -> str:
    """Return file, dataset and rows in the one form that all messages use."""
    parts = []
    if path is not None:
        parts.append(f"file '{path}'")
    if key is not None:
        parts.append(f"dataset '{key}'")
    if rows is not None:
        total = max(len(rows), count or 0)
        shown = ", ".join(str(int(row)) for row in islice(rows, _ROWS_SHOWN))
        more = f", … ({total} in all)" if total > min(len(rows), _ROWS_SHOWN) else ""
        parts.append(f"{'row' if total == 1 else 'rows'} {shown or 'none'}{more}")
    return ", ".join(parts)


class MissingFileError(SourceError, FileNotFoundError):
    """No file at the path, or no file matches the glob."""


class MissingKeyError(SourceError, KeyError):
    """No dataset of that name in the file; the message lists what is there."""


class SeveralDatasetsError(SourceError, ValueError):
    """The file holds several datasets and no key says which; the message lists them."""


class UnknownFormatError(SourceError, ValueError):
    """Not a format that oocdata opens."""


class UnsupportedDtypeError(SourceError, TypeError):
    """A dtype without a fixed-size numeric form, e.g. object arrays or structured rows."""


class CompressedMemberError(SourceError, ValueError):
    """A compressed ``.npz`` member that the cache can't hold: it can only be decoded as a whole."""


class MismatchedPartsError(SourceError, ValueError):
    """Files that don't fit together as one array along the rows."""


class TruncatedFileError(SourceError, EOFError):
    """Fewer bytes than the header promises, at ``open`` or later when the file was cut short."""


class TrailingBytesError(SourceError, ValueError):
    """More bytes than the header promises: the header is wrong or something was appended."""


class ExternalDataError(SourceError, PermissionError):
    """The dataset's bytes lie in other files: ``external=True`` accepts HDF5 files."""


class MissingChunkError(SourceError, LookupError):
    """Chunks that were never written or have been lost (storage can't tell which)."""


class DamagedChunkError(SourceError, ValueError):
    """Stored bytes that don't decode, or fail their checksum."""


class ChecksumError(SourceError, ValueError):
    """Rows that were read, but are not those whose checksums the manifest holds."""


class ManifestError(SourceError, ValueError):
    """What should be a manifest is none, is damaged, or belongs to other data."""
