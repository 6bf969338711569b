"""What the demonstration checks, the memory that it takes, and where its files lie meanwhile."""

from __future__ import annotations

import ctypes
import gc
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from oocdata.engines.cache import cache
from oocdata.errors import ArgumentError, SourceError
from oocdata.tools.demo.data import checksums
from oocdata.tools.demo.training import Subject

__all__ = ["check_frames", "growth", "workspace"]


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


def check_frames(
    subject: Subject, sums: NDArray[np.uint64], advance: Callable[[int], None]
) -> None:
    """Check that an epoch is each element once, each frame of it as it was written.

    ``sums[clip, frame]`` are checksums from before the clips were written. A frame that differs,
    or an element that came twice, is a `SourceError`.
    """
    loader, length = subject.loader, subject.parts[0].span
    seen = np.zeros(len(loader.dataset), np.int64)
    for step, (x, y) in enumerate(loader.to_tf()):
        positions = loader.positions(step)
        # Element 0 of a clip is its frames 0, 1, 2; element 1 is 1, 2, 3; and so on.
        clip, first = np.divmod(positions[:, np.newaxis], sums.shape[1] - length + 1)
        frames = first + np.arange(length)
        wrong = checksums(np.concatenate([x, y], axis=1)) != sums[clip, frames]
        if wrong.any():
            rows = (clip * sums.shape[1] + frames)[wrong]
            raise SourceError("frames must come back as they were written.", rows=rows)
        np.add.at(seen, positions, 1)
        advance(1)
    if np.any(seen != 1):
        raise SourceError(f"an epoch must be each element once; {np.sum(seen != 1)} were not.")


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
