"""How much memory a stretch of a program takes, measured and not estimated."""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from oocdata.engines.cache import cache

__all__ = ["Growth", "forget", "growth"]


@dataclass(slots=True)
class Growth:
    """By how many bytes the process grew at most; None where the system doesn't tell."""

    nbytes: int | None = None


@contextmanager
def growth() -> Iterator[Growth]:
    """Measure by how much the process grows at its peak while a block runs.

    The kernel records the peak and misses nothing (``VmHWM`` in proc(5), on Linux).

    Examples
    --------
    >>> with growth() as grown:
    ...     block = bytearray(50_000_000)
    >>> grown.nbytes is None or grown.nbytes > 40_000_000
    True
    """
    found = Growth()
    forget()
    try:
        with open("/proc/self/clear_refs", "w") as file:
            file.write("5")  # resets the record
        before = _status("VmRSS")
    except OSError:
        yield found
        return
    yield found
    found.nbytes = max(0, _status("VmHWM") - before)


def _status(name: str) -> int:
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith(f"{name}:"))


def forget() -> None:
    """Drop cached chunks and give freed memory back: its later reuse would hide growth."""
    cache.forget()
    gc.collect()
    try:
        ctypes.CDLL(None).malloc_trim(0)
    except (AttributeError, OSError):  # another C library than glibc
        return
