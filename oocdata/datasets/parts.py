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

_SHOWN = 3
"""Parts that are listed."""


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
        shown = ", ".join(self.names[:_SHOWN]) + (", …" if len(self) > _SHOWN else "")
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
            If a name matches no part, or several.
        """
        several = [names] if isinstance(names, str | bytes) else names
        if not is_iterable(several):
            raise ArgumentError(f"names must be text, one or several; got {names!r}.")
        texts = [name.decode() if isinstance(name, bytes) else str(name) for name in several]
        numbers = self._by_name({text.strip("/").count("/") + 1 for text in texts})
        found = [numbers.get(text) or numbers.get(text.strip("/")) or [] for text in texts]
        for text, matching in zip(texts, found, strict=True):
            if len(matching) != 1:
                shown = [self.names[number] for number in matching] or [*self.names]
                raise ArgumentError(
                    f"`names` must each name one part; {text!r} names {len(matching)} of the "
                    f"{len(self)}: {', '.join(shown[:_SHOWN])}, …. Give a whole name."
                )
        return np.array([number for (number,) in found], np.int64)

    def _by_name(self, steps: set[int]) -> dict[str, list[int]]:
        """Return the parts by their names, and by pieces that occur in them.

        These are ends of a path that have `steps` steps, with and without suffix, and whole keys
        or single steps of them.
        """
        numbers: dict[str, list[int]] = {}
        for number, ((path, key), name) in enumerate(zip(self.where, self.names, strict=True)):
            folders, whole_key = (path or "").split(os.sep), (key or "").strip("/")
            ends = {"/".join(folders[-length:]) for length in steps}
            words = {name, path or "", whole_key, *whole_key.split("/"), *ends}
            words.update(os.path.splitext(end)[0] for end in ends)
            for word in words - {""}:
                numbers.setdefault(word, []).append(number)
        return numbers
