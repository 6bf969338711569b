"""The demonstration's data: handwritten digits that move by known physics, in three formats.

The images are the 8×8 digits that scikit-learn ships (UCI Optical Recognition of Handwritten
Digits). Two of them fly over a square field at constant velocity, and what leaves it comes back on
the other side, much as in Moving MNIST (Srivastava and others, ICML 2015). A clip is a pure
function of (seed, clip).
"""

from __future__ import annotations

import ctypes
import gc
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from oocdata.engines.cache import cache
from oocdata.errors import ArgumentError
from oocdata.threads import cached_property
from oocdata.tools.libraries import library
from oocdata.writers import create

__all__ = ["Clips", "growth", "workspace", "write"]

_CLIPS_AT_A_TIME = 16
_DIGITS_PER_CLIP = 2
_UPSCALE = 3
_SPEED = 3
"""Pixels per frame along each axis, at most."""


@dataclass(frozen=True)
class Clips:
    """Clips of two flying digits; `count` is a multiple of 5."""

    count: int
    frames: int = 20
    side: int = 64
    seed: int = 7

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """``(clip, time, y, x)``."""
        return (self.count, self.frames, self.side, self.side)

    @cached_property
    def digits(self) -> NDArray[np.float32]:
        """The images, shape (1797, 8, 8), from 0 to 1."""
        use = "the demonstration's digits come from scikit-learn"
        datasets = library("sklearn.datasets", use, "'oocdata[demo]'")
        images: NDArray[np.float32] = np.asarray(datasets.load_digits().images / 16, np.float32)
        return images

    def choice(self, clip: int) -> range:
        """Return the digits that a clip may show: no digit is in two parts of a split."""
        fifth, digits = clip * 5 // self.count, len(self.digits)
        return range(fifth * digits // 5, (fifth + 1) * digits // 5)

    def render(self, clip: int) -> NDArray[np.float32]:
        """Return one clip, shape (frames, side, side), from 0 to 1."""
        rng = np.random.default_rng([self.seed, clip])
        made = np.zeros(self.shape[1:], np.float32)
        for number in rng.choice(self.choice(clip), _DIGITS_PER_CLIP):
            digit = np.kron(self.digits[number], np.ones((_UPSCALE, _UPSCALE), np.float32))
            field = np.pad(digit, (0, self.side - len(digit)))
            at, step = rng.integers(0, self.side, 2), rng.integers(-_SPEED, _SPEED + 1, 2)
            for time, frame in enumerate(made):
                np.maximum(frame, np.roll(field, at + time * step, (0, 1)), out=frame)
        return made


def write(
    clips: Clips, folder: Path, advance: Callable[[int], None] = lambda count: None
) -> list[str]:
    """Write all clips as ``.npy``, HDF5 and Zarr; return the paths."""
    paths = [str(folder / f"digits.{suffix}") for suffix in ("npy", "h5", "zarr")]
    with ExitStack() as stack:
        writers = []
        for path in paths:
            names = None if path.endswith(".npy") else ("clip", "time", "y", "x")
            writer = create(path, shape=clips.shape, dtype="f4", dimension_names=names)
            writers.append(stack.enter_context(writer))
        for start in range(0, clips.count, _CLIPS_AT_A_TIME):
            some = range(start, min(start + _CLIPS_AT_A_TIME, clips.count))
            frames = np.stack([clips.render(clip) for clip in some])
            for writer in writers:
                writer.append(frames)
            advance(len(some))
    return paths


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
