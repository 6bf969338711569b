"""What a conversion has done, noted beside its unfinished result: a rerun goes on from there.

A line is written when what it tells of is safe on the disk. The first line says what is converted,
and how: from another source, or with other options, it begins anew.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from hashlib import blake2b
from typing import Any

import numpy as np

from oocdata.datasets.view import View

__all__ = ["Journal", "identity"]

_VERSION = 1


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
        self._path, self._about = path, dict(about)
        self._done: dict[str, set[int]] = {}
        self._sound = 0  # bytes of whole lines
        self._number = -1
        self.reason = self._read() if os.path.exists(path) else ""
        self.resumed = bool(self._done)

    def _read(self) -> str:
        with open(self._path, "rb") as file:
            head, *lines = file.read().split(b"\n")
        try:
            begun = json.loads(head)
            saved, version = begun["about"], begun["version"]
        except (ValueError, KeyError, TypeError):
            return "its journal is damaged"
        if version != _VERSION:
            return "it was begun by another version of oocdata"
        if not saved or not self._about:
            return "its source is not a file that can be told from another"
        for name, now in self._about.items():
            if saved.get(name) != now:
                was = f" was {saved.get(name, 'not given')}, and is {now}"
                return name + (was if len(now) < 60 else " has changed")
        self._sound = len(head) + 1
        for line in lines[:-1]:  # what follows the last end of a line was cut off
            try:
                entry = json.loads(line)
                stage, numbers = entry["stage"], set(entry["done"])
            except (ValueError, KeyError, TypeError):
                break  # a disk that lost power; what follows is done again
            self._done.setdefault(stage, set()).update(numbers)
            self._sound += len(line) + 1
        return "" if self._done else "nothing of it was saved yet"

    def done(self, stage: str) -> set[int]:
        """Return the numbers of the boxes that are done."""
        return self._done.get(stage, set())

    def begin(self) -> None:
        """Open it for writing; anew, unless it is gone on with."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        if self.resumed:
            os.truncate(self._path, self._sound)  # without the line that was cut off
            self._number = os.open(self._path, flags)
            return
        self._done = {}
        self._number = os.open(self._path, flags | os.O_TRUNC)
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
    storage, rows = view.storage, view.rows
    opened = dict(storage.opened or {})
    writable = any(version.modified is None for version in storage.files)
    if not storage.files or not opened or opened.get("external") or writable:
        return {}
    versions = [f"{one.path} ({one.nbytes} bytes, changed {one.modified})" for one in storage.files]
    chosen = _digest(rows.tobytes()) if isinstance(rows, np.ndarray) else rows
    read = (sorted(opened.items()), view.source.shape, view.source.dtype, view.axes, view.grid,
            chosen, view.cuts, view.order, view.dtype)  # fmt: skip
    return {
        "the source": versions[0] + (f" and {len(versions) - 1} more" if versions[1:] else ""),
        "the source's files": _digest("\n".join([*versions, storage.version]).encode()),
        "what is read of it": _digest(repr(read).encode()),
    }


def _digest(data: bytes) -> str:
    return blake2b(data, digest_size=16).hexdigest()
