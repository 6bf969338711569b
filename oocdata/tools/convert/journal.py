"""What a conversion has done, noted beside its unfinished result: a rerun goes on from there.

A line is written when what it tells of is safe on the disk. The first line says what is converted,
and how: from another source, or with other options, it begins anew.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass
from hashlib import blake2b
from typing import Any

import numpy as np

from oocdata.datasets.view import View
from oocdata.sources.hdf5.reader import Hdf5Reader
from oocdata.sources.stamp import FileStamp
from oocdata.sources.zarr.stored import StoredArray

__all__ = ["Journal", "identity"]

_VERSION = 1
_MEMORY_ONLY = ("described", "known", "kept")
"""Fields of sources that say nothing about what is read."""


class Journal:
    """The boxes that are done, by the stage of the conversion.

    Parameters
    ----------
    path : str
    about : mapping of str
        What is converted, and how; empty where that can't be told, and nothing can be gone on with.

    Attributes
    ----------
    resumed : bool
        There was something to go on with.
    reason : str
        Why what was there can't be gone on with; empty where nothing was, or it can.
    """

    def __init__(self, path: str, about: Mapping[str, str]) -> None:
        self._path = path
        self._about = dict(about)
        self._done: dict[str, set[int]] = {}
        self._sound = 0  # bytes of whole lines
        self.resumed = False
        self.reason = self._read() if os.path.exists(path) else ""
        self._number = -1

    def _read(self) -> str:
        with open(self._path, "rb") as file:
            lines = file.read().split(b"\n")
        try:
            head = json.loads(lines[0])
            saved = head["about"]
            if head["version"] != _VERSION:
                return "it was begun by another version of oocdata"
        except (ValueError, KeyError, TypeError):
            return "its journal is damaged"
        if not saved or not self._about:
            return "its source is not a file that can be told from another"
        changed = [
            f"{name} was {saved.get(name, 'not given')}, and is {now}"
            if len(now) < 60
            else f"{name} has changed"
            for name, now in self._about.items()
            if saved.get(name) != now
        ]
        if changed:
            return "; ".join(changed)
        self._sound = len(lines[0]) + 1
        for line in lines[1:-1]:  # what follows the last end of a line was cut off
            try:
                entry = json.loads(line)
                stage, numbers = entry["stage"], set(entry["done"])
            except (ValueError, KeyError, TypeError):
                break  # a disk that lost power; what follows is done again
            self._done.setdefault(stage, set()).update(numbers)
            self._sound += len(line) + 1
        self.resumed = bool(self._done)
        return "" if self.resumed else "nothing of it was saved yet"

    def done(self, stage: str) -> set[int]:
        """Return the numbers of the boxes that are done."""
        return self._done.get(stage, set())

    def begin(self) -> None:
        """Open it for writing; anew, unless it is gone on with."""
        flags = os.O_WRONLY | os.O_CREAT | getattr(os, "O_CLOEXEC", 0)
        if self.resumed:
            os.truncate(self._path, self._sound)  # without the line that was cut off
            self._number = os.open(self._path, flags | os.O_APPEND)
            return
        self._done = {}
        self._number = os.open(self._path, flags | os.O_TRUNC | os.O_APPEND)
        self._write({"version": _VERSION, "about": self._about})

    def note(self, stage: str, numbers: Iterable[int]) -> None:
        """Note boxes that are safe on the disk."""
        self._write({"stage": stage, "done": list(numbers)})

    def _write(self, entry: dict[str, Any]) -> None:
        line = json.dumps(entry).encode() + b"\n"
        while line:  # a disk that is nearly full takes a part of it
            line = line[os.write(self._number, line) :]
        os.fsync(self._number)

    def close(self) -> None:
        """Close the file."""
        number, self._number = self._number, -1
        if number >= 0:
            os.close(number)


def identity(view: View) -> dict[str, str]:
    """Return what tells a view's content from any other; empty where nothing can.

    Files are known by path, size and time of change; those that an HDF5 dataset has its bytes from
    are not known at all.

    Examples
    --------
    >>> import oocdata as ooc
    >>> identity(ooc.open(np.zeros(3)))
    {}
    """
    found: list[str] = []
    stamps: list[str] = []
    try:
        _describe(view.source, found, stamps)
        _describe(view.rows, found, stamps)
    except TypeError:
        return {}
    digest = blake2b("\n".join(found).encode(), digest_size=16).hexdigest()
    files = blake2b("\n".join(stamps).encode(), digest_size=16).hexdigest()
    named = "; ".join(stamps[:1]) + (f" and {len(stamps) - 1} more" if len(stamps) > 1 else "")
    return {"the source": named, "the source's files": files, "what is read of it": digest}


def _describe(value: Any, found: list[str], stamps: list[str]) -> None:
    if isinstance(value, FileStamp):
        if value.modified is None:
            raise TypeError("somebody may be writing to it")
        stamps.append(f"{value.path} ({value.nbytes} bytes, changed {value.modified})")
    elif isinstance(value, StoredArray):
        if value.written is None:
            raise TypeError("it can't be told from another")
        where = os.path.join(value.store.path, value.key)
        # Where the objects were looked at, their number is a sum over all of them.
        known = "" if isinstance(value.version, str) else f", version {value.version}"
        stamps.append(f"{where} (changed {value.written}{known})")
        _describe((value.axis, value.missing, value.metadata.shape), found, stamps)
    elif isinstance(value, Hdf5Reader) and value.outside:
        raise TypeError("it is as it was only if other files are")
    elif isinstance(value, np.ndarray):
        if value.nbytes and not isinstance(value, np.memmap) and value.dtype.kind in "iu":
            found.append(blake2b(np.ascontiguousarray(value).tobytes(), digest_size=16).hexdigest())
        else:
            raise TypeError("an array in memory has no name")
    elif is_dataclass(value):
        found.append(type(value).__name__)
        for field in fields(value):
            if field.name not in _MEMORY_ONLY:
                _describe(getattr(value, field.name), found, stamps)
    elif isinstance(value, tuple):
        found.append(f"({len(value)}")
        for one in value:
            _describe(one, found, stamps)
    elif value is None or isinstance(value, str | int | float | range | np.dtype | np.generic):
        found.append(repr(value))
    else:
        raise TypeError(f"{type(value).__name__} can't be described")
