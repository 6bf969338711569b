"""One number for the memory of the process, and how it is shared out.

``set_memory(nbytes)`` (or ``OOCDATA_MEMORY``) bounds what reading keeps: batches in flight, decoded
chunks, tables and scratch, whatever the number of files and loaders. Below what one batch read and
one in use take, those are the bound.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from oocdata.errors import ArgumentError
from oocdata.index import as_count

__all__ = [
    "DEFAULT_MEMORY", "at_most", "batch_share", "cache_share", "memory_limit", "scratch_share",
    "set_memory",
]  # fmt: skip

DEFAULT_MEMORY = 512 << 20
"""Bytes."""

_LEAST = 1 << 20


def _of_environment() -> int:
    given = os.environ.get("OOCDATA_MEMORY", str(DEFAULT_MEMORY))
    if not given.strip().isdecimal() or int(given) < _LEAST:
        raise ArgumentError(
            "the environment variable OOCDATA_MEMORY must be a whole number of bytes of at least "
            f"{_LEAST}; got {given!r}. Without it {DEFAULT_MEMORY} are used."
        )
    return int(given)


_memory = _of_environment()
_lowered: list[int] = []


def memory_limit() -> int:
    """Return the bytes that reading may take in this process."""
    return min(_memory, *_lowered) if _lowered else _memory


@contextmanager
def at_most(nbytes: int) -> Iterator[None]:
    """Lower the limit for as long as a block takes; of several at once, the lowest holds.

    Examples
    --------
    >>> with at_most(8 << 20):
    ...     memory_limit()
    8388608
    """
    _lowered.append(nbytes)
    try:
        yield
    finally:
        _lowered.remove(nbytes)


def set_memory(nbytes: int) -> None:
    """Set how many bytes reading may take in this process; takes effect with the next read.

    Parameters
    ----------
    nbytes : int
        At least 1 MiB. A quarter is for batches in flight, a half for decoded chunks, the rest for
        tables and scratch. Worker processes share it evenly.

    Examples
    --------
    >>> set_memory(64 << 20)
    >>> memory_limit(), cache_share(), batch_share()
    (67108864, 33554432, 16777216)
    >>> set_memory(DEFAULT_MEMORY)
    """
    global _memory
    _memory = as_count("nbytes", nbytes, at_least=_LEAST)


def cache_share() -> int:
    """Return the bytes of decoded chunks that the process may keep, all arrays together."""
    return memory_limit() // 2


def batch_share() -> int:
    """Return the bytes of batches in flight, all loaders together."""
    return memory_limit() // 4


def scratch_share() -> int:
    """Return the bytes of tables, stored chunks being decoded, and scratch."""
    return memory_limit() // 4
