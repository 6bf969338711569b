"""The byte budget of decoded chunks, and this process's slots within it: see `leases`."""

from __future__ import annotations

import os
import threading

from oocdata.errors import ArgumentError
from oocdata.index import as_count
from oocdata.sources.leases import Slots

__all__ = ["DEFAULT_BUDGET", "chunk_budget", "most_kept", "set_chunk_budget", "slots_of"]

DEFAULT_BUDGET = 256 << 20
"""Bytes of decoded chunks that a process keeps."""

_FEWEST = 8
"""Slots at least, for chunks too large for the budget."""

_BOOKKEEPING_BYTES = 256
"""What knowing of a chunk takes, beside its slot."""


def _budget_of_environment() -> int:
    given = os.environ.get("OOCDATA_CHUNK_BYTES", str(DEFAULT_BUDGET))
    if not given.strip().isdecimal():
        raise ArgumentError(
            "the environment variable OOCDATA_CHUNK_BYTES must be a whole number of bytes; got "
            f"{given!r}. Without it {DEFAULT_BUDGET} are kept."
        )
    return int(given)


_budget = _budget_of_environment()
_lock = threading.Lock()
_by_size: dict[int, Slots] = {}


def slots_of(nbytes: int) -> Slots:
    """Return this process's slots of a size."""
    with _lock:
        found = _by_size.get(nbytes)
        if found is None:
            found = _by_size[nbytes] = Slots(nbytes, _capacity(nbytes))
        return found


def most_kept(nbytes: int, chunks: int) -> int:
    """Return the bytes that decoded chunks of one size take at most, of so many that there are.

    Examples
    --------
    >>> most_kept(1 << 30, chunks=100) >> 30  # larger than the budget: eight all the same
    8
    """
    return min(chunks, _capacity(nbytes)) * (nbytes + _BOOKKEEPING_BYTES)


def _capacity(nbytes: int) -> int:
    return max(_FEWEST, _budget // (nbytes + _BOOKKEEPING_BYTES))


def chunk_budget() -> int:
    """Return the bytes of decoded chunks that this process keeps, for each size of chunk."""
    return _budget


def set_chunk_budget(nbytes: int) -> None:
    """Set how many bytes of decoded chunks this process keeps; those kept so far are forgotten.

    Parameters
    ----------
    nbytes : int
        For each size of chunk in use. At least eight chunks are kept, however large they are.
        Worker processes begun later have as much each; readers of a cluster take it from the
        environment variable ``OOCDATA_CHUNK_BYTES``.

    Examples
    --------
    >>> set_chunk_budget(64 << 20)
    >>> chunk_budget()
    67108864
    >>> set_chunk_budget(DEFAULT_BUDGET)
    """
    global _budget
    budget = as_count("nbytes", nbytes)
    with _lock:
        _budget = budget
        # Whoever gathers at this moment holds the old slots and lets them go with its batch.
        _by_size.clear()


def _fresh_after_fork() -> None:
    global _lock
    # Chunks that a thread of the parent was decoding would never arrive here.
    _lock = threading.Lock()
    _by_size.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_fresh_after_fork)
