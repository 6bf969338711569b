"""What the demonstration reads and checks, and how much memory that takes."""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocdata.datasets.view import View
from oocdata.datasets.windows import Windows
from oocdata.engines.cache import cache
from oocdata.errors import SourceError
from oocdata.loader import Loader
from oocdata.order import Order
from oocdata.tools.demo.data import checksums

__all__ = ["Subject", "check_frames", "growth"]


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
    try:
        with open("/proc/self/clear_refs", "w") as file:
            file.write("5")  # resets the record
        before = _status("VmRSS")
    except OSError:
        yield found
        return
    yield found
    found.append(max(0, _status("VmHWM") - before))


def _status(name: str) -> int:
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith(f"{name}:"))


@dataclass(frozen=True, slots=True)
class Subject:
    """An array to read and train on."""

    frames: View
    parts: tuple[Windows, ...]  # to train, validate and test; elements x (inputs, …), y (1, …)
    batch_size: int
    seed: int
    shuffle: Order | bool = True
    scale: Callable[..., Any] | None = None  # makes x and y fit for a model

    def batches(self, part: Windows, **order: Any) -> Loader:
        """Return batches as the model gets them."""
        dataset = part if self.scale is None else part.map(self.scale)
        return dataset.batches(self.batch_size, **order)

    @property
    def loader(self) -> Loader:
        """The training part's batches, shuffled."""
        return self.batches(self.parts[0], shuffle=self.shuffle, seed=self.seed)


def check_frames(subject: Subject, sums: NDArray[np.uint64], advance: Callable[[int], None]) -> int:
    """Check that an epoch is each element once, each frame of it as it was written.

    ``sums[clip, frame]`` are checksums from before the clips were written. Returns how many
    elements there are; a frame that differs, or an element that came twice, is a `SourceError`.
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
    return len(seen)
