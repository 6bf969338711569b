"""Define `Parts`: the files or datasets that an array consists of, and their names."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from oocdata.box import Ints
from oocdata.errors import ArgumentError
from oocdata.index import is_iterable
from oocdata.threads import cached_property

_NEAREST = 3


@dataclass(frozen=True, eq=False, repr=False)
class Parts:
    """The parts of a view's array, e.g. the demonstrations in a file; returned by `View.parts`.

    Attributes
    ----------
    names : tuple of str
        Names in the order of the array: ``"/data/demo_0/actions"`` for datasets of one file, a path
        for files, ``"a.h5::/data/demo_0/actions"`` for datasets of several files.
    numbers : ndarray of int64, shape (rows,)
        Number of the part of each row, usable as groups in ``split(by=…)``.

    Examples
    --------
    >>> parts = Parts((("a.h5", "/data/demo_0/u"), ("a.h5", "/data/demo_1/u")), np.array([0, 1, 1]))
    >>> parts.names
    ('/data/demo_0/u', '/data/demo_1/u')
    >>> parts.find(["demo_1"]), parts.lengths
    (array([1]), array([1, 2]))
    """

    where: tuple[tuple[str | None, str | None], ...]
    numbers: Ints

    def __len__(self) -> int:
        return len(self.where)

    def __repr__(self) -> str:
        shown = ", ".join(self.names[:_NEAREST]) + (", …" if len(self) > _NEAREST else "")
        return f"<Parts: {len(self)}, {shown}>"

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Name of each part."""
        files = len({path for path, _ in self.where}) > 1
        keys = len({key for _, key in self.where}) > 1
        if files and keys:
            return tuple(f"{path}::{key}" for path, key in self.where)
        return tuple(str((path if files else key or path) or "memory") for path, key in self.where)

    @cached_property
    def lengths(self) -> Ints:
        """Number of the view's rows in each part, shape (parts,)."""
        return np.bincount(self.numbers, minlength=len(self)).astype(np.int64, copy=False)

    def find(self, names: Iterable[str | bytes] | str | bytes) -> Ints:
        """Return the numbers of named parts, in the order of the names.

        Parameters
        ----------
        names : iterable of str or bytes
            Full names, or pieces that occur in one part only: ``"demo_0"`` for
            ``"/data/demo_0/actions"``, ``"episode_3"`` for ``"runs/episode_3.hdf5"``, ``"cat/7"``
            or ``"cat/7.png"`` for ``"train/cat/7.png"``.

        Returns
        -------
        ndarray of int64, shape (names,)

        Raises
        ------
        oocdata.errors.ArgumentError
            If a name matches no part, or several; the message lists similar names.
        """
        several = [names] if isinstance(names, str | bytes) else names
        if not is_iterable(several):
            raise ArgumentError(f"names must be text, one or several; got {names!r}.")
        texts = [name.decode() if isinstance(name, bytes) else str(name) for name in several]
        return np.array([self._number(text) for text in texts], np.int64)

    def _number(self, name: str) -> int:
        stripped = name.strip("/")
        numbers = self._by_name(stripped.count("/") + 1)
        found = numbers.get(name) or numbers.get(stripped)
        if found is None or len(found) > 1:
            import difflib

            near = [self.names[number] for number in found or ()]
            near = near or difflib.get_close_matches(name, numbers, _NEAREST, 0.5) or [*self.names]
            raise ArgumentError(
                f"`names` must each name one part; {name!r} names {len(found or ())} of the "
                f"{len(self)}. Nearby: {', '.join(near[:_NEAREST])}. Give a whole name."
            )
        return found[0]

    def _by_name(self, steps: int) -> dict[str, list[int]]:
        """Return the parts by their whole names, and by pieces of `steps` steps.

        Pieces are the end of the path, with and without suffix, and the beginning of the key, or
        any single step of it.
        """
        if steps not in self._tables:
            numbers: dict[str, list[int]] = {}
            for number, ((path, key), name) in enumerate(zip(self.where, self.names, strict=True)):
                end = "/".join((path or "").split(os.sep)[-steps:])
                keys = (key or "").strip("/").split("/")
                words = {name, name.strip("/"), path or "", end, os.path.splitext(end)[0]}
                words |= {"/".join(keys), *(keys if steps == 1 else ["/".join(keys[:steps])])}
                for word in words - {""}:
                    numbers.setdefault(word, []).append(number)
            self._tables[steps] = numbers
        return self._tables[steps]

    @cached_property
    def _tables(self) -> dict[int, dict[str, list[int]]]:
        return {}
