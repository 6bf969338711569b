"""Make the data of the demonstration: clips of flying handwritten digits, in three formats.

The images are the 8×8 digits of scikit-learn (UCI Optical Recognition of Handwritten Digits). Two
of them fly over a square field at constant velocity, and wrap around at its edges, much as in
Moving MNIST (Srivastava and others, ICML 2015). A clip is a pure function of (seed, clip).
"""

from __future__ import annotations

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
from oocdata.errors import needed
from oocdata.memory import return_freed_memory
from oocdata.threads import cached_property
from oocdata.writers import create

_CLIPS_AT_A_TIME = 16
_DIGITS_PER_CLIP = 2
_UPSCALE = 3
_SPEED = 3
"""The most pixels per frame along each axis."""


@dataclass(frozen=True)
class Clips:
    """Clips of two flying digits."""

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
        with needed("the demonstration's digits come from scikit-learn", "'oocdata[demo]'"):
            from sklearn.datasets import load_digits
        images: NDArray[np.float32] = np.asarray(load_digits().images / 16, np.float32)
        return images

    def render(self, clip: int) -> NDArray[np.float32]:
        """Return one clip, shape (frames, side, side), from 0 to 1."""
        rng = np.random.default_rng([self.seed, clip])
        frames = np.zeros(self.shape[1:], np.float32)
        for image in rng.choice(self.digits, _DIGITS_PER_CLIP):
            digit = np.kron(image, np.ones((_UPSCALE, _UPSCALE), np.float32))
            field = np.pad(digit, (0, self.side - len(digit)))
            at, step = rng.integers(0, self.side, 2), rng.integers(-_SPEED, _SPEED + 1, 2)
            for time, frame in enumerate(frames):
                np.maximum(frame, np.roll(field, at + time * step, (0, 1)), out=frame)
        return frames


def write(
    clips: Clips, folder: Path, advance: Callable[[int], None] = lambda count: None
) -> list[str]:
    """Write all clips as ``.npy``, HDF5 and Zarr; return the paths."""
    paths = [str(folder / f"digits.{suffix}") for suffix in ("npy", "h5", "zarr")]
    with ExitStack() as stack:
        writers = []
        for path in paths:
            writer = create(path, element_shape=clips.shape[1:], dtype="f4")
            writers.append(stack.enter_context(writer))
        for start in range(0, clips.count, _CLIPS_AT_A_TIME):
            numbers = range(start, min(start + _CLIPS_AT_A_TIME, clips.count))
            frames = np.stack([clips.render(number) for number in numbers])
            for writer in writers:
                writer.append(frames)
            advance(len(numbers))
    return paths


@contextmanager
def growth() -> Iterator[list[int]]:
    """Measure the peak growth of the process's memory while a block runs.

    The context is a list, to which the bytes are appended at the end. They are from the peak that
    the kernel records (``VmHWM`` in proc(5)); on other systems than Linux the list stays empty.
    """
    # Return free memory to the system, because reusing it would hide growth.
    cache.forget()
    gc.collect()
    return_freed_memory()
    grown: list[int] = []
    before = None
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")  # resets the peak
        before = _status("VmRSS")
    yield grown
    if before is not None:
        grown.append(max(0, _status("VmHWM") - before))


def _status(name: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{name}:"))


@contextmanager
def workspace(parent: Path | None = None) -> Iterator[Path]:
    """Provide a temporary folder, which is removed at the end, also after SIGTERM."""
    before = signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    try:
        with tempfile.TemporaryDirectory(prefix="oocdata-", dir=parent) as folder:
            yield Path(folder)
    finally:
        signal.signal(signal.SIGTERM, before)
