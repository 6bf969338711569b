"""Fingerprints of rows, by which those that are bit for bit the same are found."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["find_repeats", "fingerprints"]

_PIECE = 2**16
"""Words that are worked on at a time: what a core's cache holds."""

_WORDS = 8192
"""Words of 32 bits that are hashed together; longer rows are hashed piece by piece."""

_LEVELS = 4
"""How often pieces may be hashed again: enough for rows of 10¹⁴ bytes."""


@lru_cache(maxsize=1)
def _weights() -> NDArray[np.uint64]:
    """Return the random numbers of all hashes, shape (levels, 2, words); always the same."""
    rng = np.random.default_rng(1979)  # the year of Carter and Wegman's paper
    return rng.integers(0, 2**64, (_LEVELS, 2, _WORDS), dtype=np.uint64)


def fingerprints(block: NDArray[Any]) -> NDArray[np.uint64]:
    """Return 128 bits for each row, the same for rows that are bit for bit the same.

    Rows of up to 16 bytes are their own fingerprints. Of longer ones it is two independent
    multilinear hashes: each 32-bit word times a random 64-bit number, summed up modulo 2⁶⁴ (J. L.
    Carter and M. N. Wegman, "Universal classes of hash functions", 1979; D. Lemire and O. Kaser,
    "Strongly universal string hashing is fast", 2014). Two words that differ do so by less than
    2³², so two rows that differ have one sum in common with a chance of at most 2⁻³³, and both with
    at most 2⁻⁶⁶. Rows above 32 KiB are hashed in pieces, and these hashes once more, with other
    random numbers, which adds as much again.

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
    whole = 16 if nbytes <= 16 else -(-nbytes // 4) * 4
    if whole > nbytes:
        padded = np.zeros((rows, whole), np.uint8)
        padded[:, :nbytes] = stored
        stored = padded
    if whole == 16:
        return stored.view(np.uint64)
    hashes = stored.view(np.uint32)
    for weights in _weights():
        sums = _hashed(hashes, weights)
        if sums.shape[1] == 1:
            break
        hashes = sums.reshape(rows, -1).view(np.uint32)
    return sums[:, 0]


def _hashed(words: NDArray[np.uint32], weights: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return two hashes of each piece of each row, shape (rows, pieces, 2)."""
    rows, width = words.shape
    pieces = -(-width // _WORDS)
    sums = np.empty((rows, pieces, 2), np.uint64)
    some = max(1, min(rows, _PIECE // min(width, _WORDS)))
    memory = np.empty(some * min(width, _WORDS), np.uint64)
    for piece in range(pieces):
        columns = words[:, piece * _WORDS : (piece + 1) * _WORDS]
        for start in range(0, rows, some):
            part = columns[start : start + some]
            wide = memory[: part.size].reshape(part.shape)
            np.copyto(wide, part)
            for which in range(2):
                sums[start : start + some, piece, which] = np.einsum(
                    "ij,j->i", wide, weights[which, : part.shape[1]]
                )
    return sums


def find_repeats(prints: NDArray[np.uint64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return which fingerprints came before, and where for the first time.

    Parameters
    ----------
    prints : ndarray of uint64, shape (rows, 2)

    Returns
    -------
    repeats, earliest : ndarray of int64
        In the order of the repeats.

    Examples
    --------
    >>> find_repeats(np.array([[1, 1], [2, 2], [1, 1], [1, 5]], "u8"))
    (array([2]), array([0]))
    """
    order = np.argsort(prints[:, 0])
    half = prints[order, 0]
    like_last = half[1:] == half[:-1]
    # Few come twice as a rule: only those are compared in full.
    twice = np.zeros(len(prints), np.bool_)
    twice[1:] |= like_last
    twice[:-1] |= like_last
    rows = np.sort(order[twice])
    del order, half, like_last, twice
    both = prints[rows]
    order = np.lexsort((both[:, 1], both[:, 0]))  # rows of one group stay in order
    both, rows = both[order], rows[order]
    begins = np.ones(len(rows), np.bool_)
    begins[1:] = (both[1:] != both[:-1]).any(axis=1)
    earliest = rows[begins][np.cumsum(begins) - 1]
    repeats, earliest = rows[~begins], earliest[~begins]
    order = np.argsort(repeats)
    return repeats[order], earliest[order]
