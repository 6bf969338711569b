"""Rows that are constant, and rows that are bit for bit like another one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocdata.datasets.spec import ArraySpec
from oocdata.tools.stats.fingerprints import find_repeats, fingerprints

__all__ = [
    "BlockRows",
    "RowSearch",
    "RowsFound",
    "constant_rows",
]

MOST_ROWS = 10_000_000
"""Up to which repeats are found anywhere: 16 bytes a row while reading, 64 when compared."""

_PIECE = 2**16
"""Values that are worked on at a time: what a core's cache holds."""

_PROBES = 16

_SHOWN = 100
"""Rows that are listed, of those that were counted."""


def _same(values: NDArray[Any], first: NDArray[Any]) -> NDArray[np.bool_]:
    same: NDArray[np.bool_] = values == first
    if values.dtype.kind in "fc":
        same |= (values != values) & (first != first)
    return same


def constant_rows(block: NDArray[Any]) -> NDArray[np.int64]:
    """Return which rows hold one value only; all NaN is one value, and 0.0 is -0.0.

    Parameters
    ----------
    block : ndarray, shape (rows, *element)
        C-contiguous, of more than one value in a row.

    Returns
    -------
    ndarray of int64

    Examples
    --------
    >>> constant_rows(np.array([[1, 2], [3, 3], [0, 0]]))
    array([1, 2])
    """
    flat = block.reshape(len(block), -1)
    width = flat.shape[1]
    # Few rows pass a look at a few values; only those are looked at in full.
    probes = np.unique(np.linspace(0, width - 1, _PROBES).astype(np.int64))
    left = np.flatnonzero(_same(flat[:, probes], flat[:, :1]).all(axis=1))
    step = min(width, _PIECE)
    some = max(1, _PIECE // step)
    found = []
    for start in range(0, len(left), some):
        rows = left[start : start + some]
        for column in range(0, width, step):
            same = _same(flat[rows, column : column + step], flat[rows, :1])
            rows = rows[same.all(axis=1)]
            if not len(rows):
                break
        found.append(rows)
    return np.concatenate(found) if found else left


@dataclass(frozen=True, slots=True)
class RowsFound:
    """Rows with something to tell.

    Attributes
    ----------
    constant : int or None
        How many hold one value only; None where a row is a single number.
    constant_shown : tuple of int
        The first hundred of them.
    repeats : int or None
        How many are bit for bit like an earlier one; None if that was not looked for.
    repeats_shown : tuple of (int, int)
        The first hundred of them, each with the earliest row that it is like.
    compared : str
        With what each row was compared: "all", "neighbours" or "none".
    """

    constant: int | None
    constant_shown: tuple[int, ...]
    repeats: int | None
    repeats_shown: tuple[tuple[int, int], ...]
    compared: str


@dataclass(frozen=True, slots=True, eq=False)
class BlockRows:
    """What is known of the rows of one block: how many, which are constant, fingerprints."""

    number: int
    constant: NDArray[np.int64]
    prints: NDArray[np.uint64]


class RowSearch:
    """Looks for rows that are constant or like another one, block after block.

    Parameters
    ----------
    rows : int
        There are in all.
    spec : ArraySpec
        Of a row. One of a single number is always constant, and often like another: no search.
    duplicates : bool

    Examples
    --------
    >>> search = RowSearch(3, ArraySpec((2,), np.dtype("i8")), duplicates=True)
    >>> search.add(search.look(np.array([[1, 2], [3, 3], [1, 2]])))
    >>> found = search.found()
    >>> found.constant_shown, found.repeats_shown
    ((1,), ((2, 0),))
    """

    def __init__(self, rows: int, spec: ArraySpec, duplicates: bool) -> None:
        self._constants = spec.nbytes > spec.dtype.itemsize
        self.compared = "none"
        if duplicates and self._constants:
            self.compared = "all" if rows <= MOST_ROWS else "neighbours"
        self._rows = 0
        self._constant = _Listed()
        self._repeats = _Listed()
        self._prints = np.empty((rows if self.compared == "all" else 1, 2), np.uint64)

    def look(self, block: NDArray[Any]) -> BlockRows:
        """Look at the rows of a block; in any thread, in any order."""
        none = np.empty(0, np.int64)
        return BlockRows(
            len(block),
            constant_rows(block) if self._constants else none,
            fingerprints(block) if self.compared != "none" else np.empty((0, 2), np.uint64),
        )

    def add(self, block: BlockRows) -> None:
        """Take what was found in the next block."""
        first, self._rows = self._rows, self._rows + block.number
        self._constant.extend(block.constant + first)
        if self.compared == "all":
            self._prints[first : self._rows] = block.prints
        elif self.compared == "neighbours":
            beside = np.concatenate((self._prints[: min(first, 1)], block.prints))
            alike = np.flatnonzero((beside[1:] == beside[:-1]).all(axis=1))
            later = alike + self._rows - len(beside) + 1
            self._repeats.extend(np.stack((later, later - 1), axis=1))
            self._prints[0] = block.prints[-1]

    def found(self) -> RowsFound:
        """Return what was found in all blocks."""
        if self.compared == "all":
            self._repeats = _Listed()
            self._repeats.extend(np.stack(find_repeats(self._prints[: self._rows]), axis=1))
        return RowsFound(
            self._constant.count if self._constants else None,
            tuple(self._constant.shown),
            None if self.compared == "none" else self._repeats.count,
            tuple((row, earlier) for row, earlier in self._repeats.shown),
            self.compared,
        )


class _Listed:
    """Rows, all counted and the first of them listed."""

    def __init__(self) -> None:
        self.count = 0
        self.shown: list[Any] = []

    def extend(self, rows: NDArray[np.int64]) -> None:
        self.count += len(rows)
        self.shown += rows[: _SHOWN - len(self.shown)].tolist()
