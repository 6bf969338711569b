"""Checksums of rows, as manifests keep them.

XXH3 (64 bits, seed 0, xxHash 0.8) is a hash, not a code with a proven distance: an accidental
change goes unnoticed with a probability of about 2⁻⁶⁴. CRC-32C, of which it is proven that no burst
of up to 32 bits does (Castagnoli, Bräuer and Herrmann 1993), takes three times as long on rows of
60 KB, and lets other damage pass with 2⁻³².
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocdata.errors import MissingDependencyError

__all__ = ["CHECKSUM", "checksums_of", "running_checksum", "unit_rows"]

CHECKSUM = "xxh3-64"

_UNIT_BYTES = 512
"""Rows smaller than this share a checksum: a table then takes at most a 64th of its array."""


def unit_rows(shape: tuple[int, ...], dtype: np.dtype[Any]) -> int:
    """Return how many rows share a checksum: one, or as many small ones as 512 bytes take.

    Examples
    --------
    >>> unit_rows((1000, 3, 50, 50), np.dtype("f8")), unit_rows((1000,), np.dtype("f4"))
    (1, 128)
    """
    row_bytes = prod(shape[1:]) * dtype.itemsize
    return max(1, -(-_UNIT_BYTES // max(1, row_bytes)))


def checksums_of(rows: NDArray[Any], unit: int) -> NDArray[np.uint64]:
    r"""Return the checksums of rows, a unit of them at a time; the last unit may be shorter.

    Parameters
    ----------
    rows : ndarray, shape (n, *element)
        In either byte order.
    unit : int
        Rows to a checksum.

    Returns
    -------
    ndarray of uint64, shape (ceil(n / unit),)

    Examples
    --------
    >>> from xxhash import xxh3_64_intdigest as checksum
    >>> found = checksums_of(np.arange(3, dtype=">i2"), 2)
    >>> found.tolist() == [checksum(b"\0\0\1\0"), checksum(b"\2\0")]
    True
    """
    checksum = _library().xxh3_64_intdigest
    count = len(rows)
    little = np.ascontiguousarray(rows, rows.dtype.newbyteorder("<"))
    nbytes = little.nbytes // max(1, count) * unit
    if not nbytes:
        return np.full(-(-count // unit), checksum(b""), np.uint64)
    whole = little.reshape(-1).view(np.uint8)
    full = count // unit
    # Rows of an array come out of its iterator in C; slicing it takes twice as long as the hash.
    units = whole[: full * nbytes].reshape(full, nbytes)
    found = np.fromiter(map(checksum, units), np.uint64, full)
    if full * unit < count:
        found = np.append(found, np.uint64(checksum(whole[full * nbytes :])))
    return found


def running_checksum(before: bytes = b"") -> Any:
    """Return a checksum that is made part by part, with ``update`` and ``hexdigest``.

    Examples
    --------
    >>> running_checksum(b"abc").hexdigest()
    '78af5f94892f3950'
    """
    return _library().xxh3_64(before)


def _library() -> Any:
    try:
        import xxhash
    except ImportError as error:
        raise MissingDependencyError(
            f"manifests need xxhash; {error}. Install it: pip install xxhash."
        ) from error
    return xxhash
