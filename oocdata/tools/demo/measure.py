"""The memory that the demonstration takes, and where its files lie meanwhile."""

from __future__ import annotations

import ctypes
import gc
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from oocdata.engines.cache import cache
from oocdata.errors import ArgumentError

__all__ = ["growth", "workspace"]


@contextmanager
def growth() -> Iterator[list[int]]:
    """Give a list that gets the bytes by which the process grew at its peak while a block ran.

    The kernel records the peak and misses nothing (``VmHWM`` in proc(5), on Linux). Where the
    system doesn't tell, the list stays empty.
    """
    # The reuse of memory that was freed before would hide growth.
    cache.forget()
    gc.collect()
    with suppress(AttributeError, OSError):  # another C library than glibc
        ctypes.CDLL(None).malloc_trim(0)
    found: list[int] = []
    before = None
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")  # resets the record
        before = _status("VmRSS")
    yield found
    if before is not None:
        found.append(max(0, _status("VmHWM") - before))


def _status(name: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{name}:"))


@contextmanager
def workspace(keep: Path | None) -> Iterator[Path]:
    """Give a folder for files; one that is not kept goes, also where SIGTERM ends the process."""
    if keep is not None:
        if keep.exists() and (not keep.is_dir() or any(keep.iterdir())):
            raise ArgumentError(f"`keep` must be a new or empty folder; '{keep}' is not.")
        keep.mkdir(parents=True, exist_ok=True)
        yield keep
        return
    before = signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    try:
        with tempfile.TemporaryDirectory(prefix="oocdata-demo-") as folder:
            yield Path(folder)
    finally:
        signal.signal(signal.SIGTERM, before)
