"""How far a conversion has come, noted beside its unfinished result: a rerun goes on from there.

A note is written when what it tells of is safe on the disk, and takes the place of the last one in
one step. It says what is converted, and how: from another source, or with other options, a rerun
begins anew.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping

from oocdata.datasets.view import View
from oocdata.describe.content import exact_content
from oocdata.describe.fingerprints import dataset_fingerprint
from oocdata.writers.disk import write_json

__all__ = ["Journal", "identity"]


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
            saved, done = told["about"], told["done"]
        except (ValueError, KeyError, TypeError):
            return "its journal is damaged"
        if not self._about:
            return "its source is not a file that can be told from another"
        other = [name for name, now in self._about.items() if saved.get(name) != now]
        if other:
            return f"{other[0]} has changed"
        self.done = done
        return "" if done else "nothing of it was saved yet"

    def note(self, **done: int) -> None:
        """Note how many boxes of a stage are safe on the disk."""
        self.done.update(done)
        write_json(self._path, {"about": self._about, "done": self.done})


def identity(view: View) -> dict[str, str]:
    """Return what tells a view's content from any other; empty where nothing can.

    Files that an HDF5 dataset has its bytes from are not known at all.
    """
    storage = view.storage
    opened = storage.opened or {}
    writable = any(version.modified is None for version in storage.files)
    if not storage.files or not opened or opened.get("external") or writable:
        return {}
    return {
        "the source": exact_content(view.source),
        "what is read of it": dataset_fingerprint(view),
    }
