"""Define the exceptions and warnings that oocdata raises.

::

    OocdataError
    ├── ArgumentError (ValueError)            a call's argument breaks its rule
    │   └── EmptyError                        the result would hold no element
    ├── PositionError (IndexError)            a position or row that does not exist
    ├── MissingDependencyError (ImportError)  an optional package is needed
    ├── MapError (ValueError)                 a mapped function's result breaks its spec
    ├── DescriptionError (ValueError)         a loader can't be written as JSON, or read from it
    ├── DatasetGoneError (RuntimeError)       a front-end was used after its dataset went away
    ├── RestoreError (ValueError)             a saved position does not belong to this training
    ├── ServiceError (ConnectionError)        a cluster of readers does not answer
    ├── WorkerError (RuntimeError)            a worker process ended, or hung, before it was done
    ├── MissingChunkWarning (UserWarning)     absent Zarr chunks are read as the fill value
    ├── MissingPartnerWarning (UserWarning)   a join leaves out elements that have no partner
    ├── PairingWarning (UserWarning)          files zipped by place do not belong together by name
    ├── PartBorderWarning (UserWarning)       windows cross from file to file, or gaps
    ├── CacheFolderWarning (UserWarning)      the cache folder can't be written any more
    └── SourceError (OSError)                 stored data cannot be delivered
        ├── MissingFileError (FileNotFoundError)
        ├── MissingKeyError (KeyError)        no such dataset in the file
        ├── SeveralDatasetsError (ValueError) a key is needed to choose one
        ├── UnknownFormatError (ValueError)   not a format oocdata opens
        ├── UnsupportedDtypeError (TypeError) e.g. object arrays
        ├── MismatchedPartsError (ValueError) files that do not make one array
        ├── TruncatedFileError (EOFError)     fewer bytes than the header promises
        ├── TrailingBytesError (ValueError)   more bytes than the header promises
        ├── ExternalDataError (PermissionError) the data are in other files
        ├── MissingChunkError (LookupError)   a chunk never written, or lost
        ├── DamagedChunkError (ValueError)    bytes that do not decode
        ├── ChecksumError (ValueError)        rows that differ from the checksums of their manifest
        └── ManifestError (ValueError)        a manifest is missing, damaged, or of other data

Every class also inherits from the builtin in brackets, so ``except FileNotFoundError`` works as
expected. A message states the rule, the value that broke it, and one hint. Names of arguments are
in backticks, or before an equals sign: the command line finds them (`arguments_named`) and shows
its own options instead.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sized
from contextlib import contextmanager
from functools import partial
from itertools import islice
from typing import Any, NoReturn, TypeVar

__all__ = [
    "ArgumentError", "CacheFolderWarning", "ChecksumError", "DamagedChunkError", "DatasetGoneError",
    "DescriptionError", "EmptyError", "ExternalDataError", "ManifestError", "MapError",
    "MismatchedPartsError", "MissingChunkError", "MissingChunkWarning", "MissingDependencyError",
    "MissingFileError", "MissingKeyError", "MissingPartnerWarning", "OocdataError",
    "PairingWarning", "PartBorderWarning", "PositionError", "RestoreError", "ServiceError",
    "SeveralDatasetsError", "SourceError", "TrailingBytesError", "TruncatedFileError",
    "UnknownFormatError", "UnsupportedDtypeError", "WorkerError",
]  # fmt: skip

_Class = TypeVar("_Class", bound=type)

_LONGEST = 4000
_ROWS_SHOWN = 8
_ROWS_KEPT = 1000


def arguments_named(message: str) -> tuple[str, ...]:
    """Return the names of arguments in a message, each once, in order of appearance."""
    names = re.finditer(r"`([a-z_]+)`|\b([a-z_]+)=", message)
    return tuple(dict.fromkeys(name[1] or name[2] for name in names))


def without_methods(advice: Mapping[str, str]) -> Callable[[_Class], _Class]:
    """Decorate a class so that names of methods that it lacks raise an error with advice.

    (``__getattr__`` would do this too, but it also replaces the AttributeError of a mapped function
    that is called by a property, such as `Dataset.spec`.)
    """

    def decorate(decorated: _Class) -> _Class:
        for name, text in advice.items():
            setattr(decorated, name, _NoMethod(name, text))
        return decorated

    return decorate


class _NoMethod:
    """A name that a class lacks: reading the attribute raises AttributeError."""

    def __init__(self, name: str, text: str) -> None:
        self._name, self._text = name, text

    def __get__(self, instance: object, owner: type) -> NoReturn:
        raise AttributeError(f"a {owner.__name__} has no `{self._name}`{self._text}.")


class OocdataError(Exception):
    """Base class of all exceptions that oocdata raises."""

    def __init__(self, message: str = "") -> None:
        # Messages quote arguments, such as a list of a million numbers.
        super().__init__(
            message
            if len(message) <= _LONGEST
            else f"{message[: _LONGEST // 2]} … {message[-_LONGEST // 4 :]}"
        )

    @property
    def arguments(self) -> tuple[str, ...]:
        """Names of the call's arguments in the message."""
        return arguments_named(str(self))


class ArgumentError(OocdataError, ValueError):
    """An argument breaks its rule; raised by the call itself, before anything is read."""


class EmptyError(ArgumentError):
    """The result would hold no element at all."""


class PositionError(OocdataError, IndexError):
    """A position within a dataset, or a row in storage, that does not exist."""


class MissingDependencyError(OocdataError, ImportError):
    """An optional package is missing; the message gives the command that installs it."""


class MapError(OocdataError, ValueError):
    """A function given to ``map`` returned something other than its ``spec``."""


class DescriptionError(OocdataError, ValueError):
    """A loader can't be described, or can't be made from a description."""


class DatasetGoneError(OocdataError, RuntimeError):
    """A TensorFlow iterator outlived the dataset that it reads through."""


class ServiceError(OocdataError, ConnectionError):
    """The dispatcher of a cluster of readers does not answer."""


class WorkerError(OocdataError, RuntimeError):
    """A worker process ended, or hung, before its steps were read.

    Parameters
    ----------
    message : str
        The rule, what broke it, and one hint.
    pid : int, optional
        Process id.
    exit_code : int, optional
        Exit code; None if a signal ended the process.
    signal : str, optional
        Signal that ended the process, e.g. ``"SIGKILL"``; None if it exited.
    epoch, step : int, optional
        First step that the process was to read.

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
    """Absent chunks of a Zarr array are read as its fill value; issued once per array."""


class MissingPartnerWarning(OocdataError, UserWarning):  # noqa: N818  # a warning, no error
    """A join leaves out elements that have no partner; the message gives their number."""


class PairingWarning(OocdataError, UserWarning):  # noqa: N818  # a warning, no error
    """Files that are zipped by their places have numbers in their names that do not fit."""


class PartBorderWarning(OocdataError, UserWarning):  # noqa: N818  # a warning, no error
    """Windows cross from one file or array into the next, or a gap in a selection of rows."""


class CacheFolderWarning(OocdataError, UserWarning):  # noqa: N818  # a warning, no error
    """A cache folder can't be written any more; missing entries are fetched on each use."""


class RestoreError(OocdataError, ValueError):
    """A saved position is damaged, or belongs to other data, another loader or another model."""


class SourceError(OocdataError, OSError):
    """Stored data can't be delivered.

    Parameters
    ----------
    message : str
        The rule, what broke it, and one hint.
    path : str, optional
        The file; an attribute, and named in the message.
    key : str, optional
        The dataset inside the file; an attribute, and named in the message.
    rows : iterable of int, optional
        Affected rows. The attribute is a tuple of the first thousand, and the message names the
        first eight. A long range or array costs no more than that.
    count : int, optional
        Number of affected rows, if `rows` holds only the first of them.

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
            self.set_rows(rows)
        super().__init__(message)

    def set_rows(self, rows: Iterable[int]) -> None:
        """Set the affected rows; see the parameter `rows`."""
        sized = rows if isinstance(rows, Sized) else list(rows)
        self.rows = tuple(int(row) for row in islice(sized, _ROWS_KEPT))
        self.count = max(len(sized), self.count or 0)

    def __str__(self) -> str:
        location = location_text(self.path, self.key, self.rows, self.count)
        return f"{self.message} [{location}]" if location else self.message

    def __reduce__(self) -> tuple[Any, ...]:
        # OSError.__reduce__ would lose the keywords when a worker process sends the error.
        keywords = {name: getattr(self, name) for name in ("path", "key", "rows", "count")}
        return (partial(type(self), **keywords), (self.message,))


@contextmanager
def needed(need: str, install: str) -> Iterator[None]:
    """Raise `MissingDependencyError` with a pip command if the block can't import a package."""
    try:
        yield
    except ImportError as error:
        raise MissingDependencyError(
            f"{need}; {error}. Install it: pip install {install}."
        ) from error


@contextmanager
def error_location(path: str | None, key: str | None = None) -> Iterator[None]:
    """Add the file and the dataset to any `SourceError` raised in the block that lacks them."""
    try:
        yield
    except SourceError as error:
        error.path, error.key = error.path or path, error.key or key
        raise


def error_text(error: BaseException) -> str:
    """Return an error's message, without the quotes of `KeyError` and the final full stop.

    Of a system call that failed in HDF5, which tells all its arguments, only the system's words.
    """
    text = str(error.args[-1] if error.args else error).rstrip(".")
    of_system = re.search(r"error message = '([^']+)'", text)
    return of_system[1] if of_system else text


def traceback_text(error: BaseException) -> str:
    """Return the traceback of an exception as text, without the notes that the exception has."""
    from traceback import TracebackException  # not for `import oocdata`

    raised = TracebackException.from_exception(error)
    raised.__notes__ = None
    return "".join(raised.format())


def location_text(
    path: str | None,
    key: str | None = None,
    rows: Collection[int] | None = None,
    count: int | None = None,
) -> str:
    """Return the text for file, dataset and rows that all messages use."""
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
    """No dataset of that name in the file; the message lists the datasets that exist."""


class SeveralDatasetsError(SourceError, ValueError):
    """The file holds several datasets and no key was given; the message lists them."""


class UnknownFormatError(SourceError, ValueError):
    """The file's format is not one that oocdata opens, or its metadata are unreadable."""


class UnsupportedDtypeError(SourceError, TypeError):
    """A dtype whose elements have no fixed size, or are not numbers, e.g. object arrays."""


class MismatchedPartsError(SourceError, ValueError):
    """Parts can't be concatenated along the rows, e.g. because their shapes differ."""


class TruncatedFileError(SourceError, EOFError):
    """The file is shorter than its header says; raised by ``open``, or by a later read."""


class TrailingBytesError(SourceError, ValueError):
    """The file is longer than its header says: the header is wrong, or data were appended."""


class ExternalDataError(SourceError, PermissionError):
    """The dataset's bytes are in other files; ``external=True`` accepts HDF5 files."""


class MissingChunkError(SourceError, LookupError):
    """Chunks were never written, or have been lost (storage can't distinguish the two)."""


class DamagedChunkError(SourceError, ValueError):
    """Stored bytes don't decode, or fail their checksum."""


class ChecksumError(SourceError, ValueError):
    """Rows differ from the checksums of their manifest."""


class ManifestError(SourceError, ValueError):
    """A manifest is missing, damaged, or belongs to other data."""
