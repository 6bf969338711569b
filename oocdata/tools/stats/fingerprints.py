"""Fingerprints of rows, by which those that are bit for bit the same are found."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["find_repeats", "fingerprints"]


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
