"""How far a conversion has come, noted beside its unfinished result: a rerun goes on from there.

A note is written when what it tells of is safe on the disk, and takes the place of the last one in
one step. It says what is converted, and how: from another source, or with other options, a rerun
begins anew.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from hashlib import blake2b

import numpy as np

from oocdata.datasets.view import View
from oocdata.writers.disk import sync_file

__all__ = ["Journal", "identity"]

_VERSION = 2


class Journal:
    """How many boxes are done, by the stage of the conversion; `about` says of which one."""

    def __init__(self, path: str, about: Mapping[str, str]) -> None:
        self._path, self._about = path, dict(about)
        self.done: dict[str, int] = {}
        # Why what was there can't be gone on with; empty where nothing was, or it can.
        self.reason = self._read() if os.path.exists(path) else ""

    def _read(self) -> str:
        try:
            with open(self._path, encoding="utf-8") as file:
                told = json.load(file)
            version, saved, done = told["version"], told["about"], told["done"]
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
        self.done = done
        return "" if done else "nothing of it was saved yet"

    def note(self, **done: int) -> None:
        """Note how many boxes of a stage are safe on the disk."""
        self.done.update(done)
        told = {"version": _VERSION, "about": self._about, "done": self.done}
        with open(f"{self._path}.new", "w", encoding="utf-8") as file:
            json.dump(told, file)
        sync_file(file.name)
        os.replace(file.name, self._path)


def identity(view: View) -> dict[str, str]:
    """Return what tells a view's content from any other; empty where nothing can.

    Files are known by path, size and time of change; those that an HDF5 dataset has its bytes from
    are not known at all.
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
