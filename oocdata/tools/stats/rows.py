"""Rows that are constant, and rows that are bit for bit like an earlier one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocdata.datasets.spec import ArraySpec

__all__ = ["RowSearch", "RowsFound", "constant_rows", "fingerprints"]

MOST_ROWS = 10_000_000
"""Up to which repeats are found anywhere: 16 bytes a row while reading, 64 when compared."""

_PIECE = 2**16
"""Values that are worked on at a time: what a core's cache holds."""

_PROBES = 16

_SHOWN = 100
"""Rows that are listed, of those that were counted."""


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


def constant_rows(block: NDArray[Any]) -> NDArray[np.int64]:
    """Return which rows hold one value only; all NaN is one value, and 0.0 is -0.0.

    Examples
    --------
    >>> constant_rows(np.array([[1, 2], [3, 3], [0, 0]]))
    array([1, 2])
    """

    def constant(rows: NDArray[Any]) -> NDArray[np.bool_]:
        first = rows[:, :1]
        same = (rows == first) | ((rows != rows) & (first != first))
        return np.asarray(same.all(axis=1))

    flat = block.reshape(len(block), -1)
    width = flat.shape[1]
    # Few rows pass a look at a few values: only those are looked at in full.
    probes = np.unique(np.linspace(0, width - 1, _PROBES).astype(np.int64))
    left = np.flatnonzero(constant(flat[:, probes]))
    step = max(1, _PIECE // width)
    found = [constant(flat[left[at : at + step]]) for at in range(0, len(left), step)]
    return left[np.concatenate(found)] if found else left


def fingerprints(block: NDArray[Any]) -> NDArray[np.uint64]:
    """Return 128 bits for each row, the same for rows that are bit for bit the same.

    Rows of up to 16 bytes are their own fingerprints; of longer ones it is XXH3 (128 bits, seed 0,
    xxHash 0.8).

    Parameters
    ----------
    block : ndarray, shape (rows, *element)
        C-contiguous.

    Returns
    -------
    ndarray of uint64, shape (rows, 2)

    Examples
    --------
    >>> one, other, again = fingerprints(np.array([[1.0] * 9, [2.0] * 9, [1.0] * 9]))
    >>> bool((one == again).all()), bool((one == other).all())
    (True, False)
    """
    rows = len(block)
    stored = block.reshape(rows, -1).view(np.uint8)
    nbytes = stored.shape[1]
    if nbytes > 16:
        from xxhash import xxh3_128_digest  # not for `import oocdata`

        digest: Callable[[Any], bytes] = xxh3_128_digest
        digests = b"".join(map(digest, stored))
        return np.frombuffer(digests, np.uint64).reshape(rows, 2)
    padded = np.zeros((rows, 16), np.uint8)
    padded[:, :nbytes] = stored
    return padded.view(np.uint64)


def _repeats(prints: NDArray[np.uint64]) -> NDArray[np.int64]:
    """Return pairs of a row whose fingerprint came before, and the first that has it."""
    order = np.lexsort((prints[:, 1], prints[:, 0]))  # stable: rows of one group stay in order
    begins = np.ones(len(order), np.bool_)
    begins[1:] = (prints[order[1:]] != prints[order[:-1]]).any(axis=1)
    earliest = order[begins][np.cumsum(begins) - 1]
    pairs = np.stack((order, earliest), axis=1)[~begins]
    return pairs[np.argsort(pairs[:, 0])]


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
    >>> search.add(*search.look(np.array([[1, 2], [3, 3], [1, 2]])))
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

    def look(self, block: NDArray[Any]) -> tuple[int, NDArray[np.int64], NDArray[np.uint64]]:
        """Return the number of rows of a block, the constant ones, and fingerprints; any thread."""
        constant = constant_rows(block) if self._constants else np.empty(0, np.int64)
        prints = fingerprints(block) if self.compared != "none" else np.empty((0, 2), np.uint64)
        return len(block), constant, prints

    def add(self, rows: int, constant: NDArray[np.int64], prints: NDArray[np.uint64]) -> None:
        """Take what was found in the next block."""
        first, self._rows = self._rows, self._rows + rows
        self._constant.extend(constant + first)
        if self.compared == "all":
            self._prints[first : self._rows] = prints
        elif self.compared == "neighbours":
            beside = np.concatenate((self._prints[: min(first, 1)], prints))
            alike = np.flatnonzero((beside[1:] == beside[:-1]).all(axis=1))
            later = alike + self._rows - len(beside) + 1
            self._repeats.extend(np.stack((later, later - 1), axis=1))
            self._prints[0] = prints[-1]

    def found(self) -> RowsFound:
        """Return what was found in all blocks."""
        if self.compared == "all":
            self._repeats.extend(_repeats(self._prints[: self._rows]))
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
