"""Parts: the files or datasets that one array is put together from, and their names."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from oocdata.errors import ArgumentError
from oocdata.index import is_several
from oocdata.threads import cached_property

__all__ = ["Parts"]

_NEAREST = 3


@dataclass(frozen=True, eq=False, repr=False)
class Parts:
    """The parts of the array of a view, e.g. the demonstrations of a file; made by `View.parts`.

    Attributes
    ----------
    names : tuple of str
        In their order in the array: ``"/data/demo_0/actions"`` for datasets of one file, a path for
        files, ``"a.h5::/data/demo_0/actions"`` for datasets of several files.
    numbers : ndarray of int64, shape (rows,)
        The part that each row of the view lies in: groups for ``split(by=…)``.

    Examples
    --------
    >>> parts = Parts((("a.h5", "/data/demo_0/u"), ("a.h5", "/data/demo_1/u")), np.array([0, 1, 1]))
    >>> parts.names
    ('/data/demo_0/u', '/data/demo_1/u')
    >>> parts.find(["demo_1"]), parts.lengths
    (array([1]), array([1, 2]))
    """

    where: tuple[tuple[str | None, str | None], ...]
    numbers: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.where)

    def __repr__(self) -> str:
        shown = ", ".join(self.names[:_NEAREST]) + (", …" if len(self) > _NEAREST else "")
        return f"<Parts: {len(self)}, {shown}>"

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The name of each part."""
        files = len({path for path, _ in self.where}) > 1
        keys = len({key for _, key in self.where}) > 1
        if files and keys:
            return tuple(f"{path}::{key}" for path, key in self.where)
        return tuple(str((path if files else key or path) or "memory") for path, key in self.where)

    @cached_property
    def lengths(self) -> NDArray[np.int64]:
        """Rows of the view in each part, shape (parts,)."""
        return np.bincount(self.numbers, minlength=len(self)).astype(np.int64, copy=False)

    def find(self, names: Iterable[str | bytes] | str | bytes) -> NDArray[np.int64]:
        """Return the numbers of named parts, in the order of the names.

        Parameters
        ----------
        names : iterable of str or bytes
            Each names one part: by its whole name, or by a piece of it that no other part has:
            ``"demo_0"`` of ``"/data/demo_0/actions"``, ``"episode_3"`` of
            ``"runs/episode_3.hdf5"``, ``"cat/7"`` or ``"cat/7.png"`` of ``"train/cat/7.png"``.

        Raises
        ------
        oocdata.errors.ArgumentError
            If a name is that of no part, or of several; the message says which come near.
        """
        given = [names] if isinstance(names, str | bytes) else names
        if not is_several(given):
            raise ArgumentError(f"names must be text, one or several; got {names!r}.")
        texts = [one.decode() if isinstance(one, bytes) else str(one) for one in given]
        return np.array([self._number(text) for text in texts], np.int64)

    def _number(self, name: str) -> int:
        found = self._known.get(name) or self._known.get(name.strip("/"))
        found = found or self._ending(name.strip("/").count("/") + 1).get(name.strip("/"))
        if found is None:
            import difflib

            near = difflib.get_close_matches(name, self._known, _NEAREST, 0.5)
            there = near or [*self.names[:_NEAREST], *(["…"] if len(self) > _NEAREST else [])]
            raise ArgumentError(
                f"`names` must be names of parts; {name!r} is none of the {len(self)}. "
                f"{'Nearby' if near else 'They are'}: {', '.join(there)}."
            )
        if len(found) > 1:
            raise ArgumentError(
                f"`names` must each name one part; {name!r} names {len(found)}, of which the first "
                f"are {self.names[found[0]]} and {self.names[found[1]]}. Give the whole name."
            )
        return found[0]

    def _ending(self, steps: int) -> dict[str, list[int]]:
        """Return the parts that paths of files end with, by so many of their last steps."""
        if steps not in self._endings:
            found: dict[str, list[int]] = {}
            for number, (path, _) in enumerate(self.where):
                end = "/".join((path or "").split(os.sep)[-steps:])
                for word in {end, os.path.splitext(end)[0]} if steps > 1 else ():
                    found.setdefault(word, []).append(number)
            self._endings[steps] = found
        return self._endings[steps]

    @cached_property
    def _endings(self) -> dict[int, dict[str, list[int]]]:
        return {}

    @cached_property
    def _known(self) -> dict[str, list[int]]:
        """The parts that each whole name, or piece of one, belongs to."""
        known: dict[str, list[int]] = {}
        for number, ((path, key), name) in enumerate(zip(self.where, self.names, strict=True)):
            steps = (key or "").strip("/").split("/")
            file = os.path.basename(path or "")
            words = {name, name.strip("/"), path or "", file, os.path.splitext(file)[0], *steps}
            words |= {"/".join(steps[:count]) for count in range(2, len(steps) + 1)}
            for word in words - {""}:
                known.setdefault(word, []).append(number)
        return known
