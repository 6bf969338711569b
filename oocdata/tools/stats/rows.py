"""Rows that are constant, and rows that are bit for bit like an earlier one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from xxhash import xxh3_128_digest

__all__ = ["RowsFound", "constant_rows", "fingerprints", "repeats"]


@dataclass(frozen=True, slots=True)
class RowsFound:
    """Rows with something to tell."""

    constant: int | None  # how many hold one value only; None where a row is a single number
    constant_shown: tuple[int, ...]  # the first hundred of them
    repeats: int | None  # how many are bit for bit like an earlier one; None if not looked for
    repeats_shown: tuple[tuple[int, int], ...]  # a hundred, each with the earliest row like it
    not_compared: str = ""  # why repeats were not looked for; empty if they were


def constant_rows(block: NDArray[Any]) -> NDArray[np.int64]:
    """Return which rows hold one value only; all NaN is one value, and 0.0 is -0.0.

    Examples
    --------
    >>> constant_rows(np.array([[1, 2], [3, 3], [0, 0]]))
    array([1, 2])
    """
    flat = block.reshape(len(block), -1)
    low, high = flat.min(axis=1), flat.max(axis=1)  # NaN where a value is
    same = low == high
    suspects = np.flatnonzero(low != low)
    same[suspects] = (flat[suspects] != flat[suspects]).all(axis=1)
    return np.flatnonzero(same)


def fingerprints(block: NDArray[Any]) -> NDArray[np.uint64]:
    """Return 128 bits for each row, shape (rows, 2), the same for rows of the same bits.

    Rows of up to 16 bytes are their own fingerprints; of longer ones it is XXH3 (128 bits, seed 0,
    xxHash 0.8).

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
        digest: Callable[[Any], bytes] = xxh3_128_digest
        digests = b"".join(map(digest, stored))
        return np.frombuffer(digests, np.uint64).reshape(rows, 2)
    padded = np.zeros((rows, 16), np.uint8)
    padded[:, :nbytes] = stored
    return padded.view(np.uint64)


def repeats(prints: NDArray[np.uint64]) -> NDArray[np.int64]:
    """Return pairs of a row whose fingerprint came before, and the first that has it.

    Examples
    --------
    >>> repeats(np.array([[1, 1], [2, 2], [1, 1], [1, 5]], "u8"))
    array([[2, 0]])
    """
    order = np.lexsort((prints[:, 1], prints[:, 0]))  # stable: rows of one group stay in order
    begins = np.ones(len(order), np.bool_)
    begins[1:] = (prints[order[1:]] != prints[order[:-1]]).any(axis=1)
    earliest = order[begins][np.cumsum(begins) - 1]
    pairs = np.stack((order, earliest), axis=1)[~begins]
    return pairs[np.argsort(pairs[:, 0])]
