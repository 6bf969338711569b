"""Functions that workers of a cluster may import, in the tests of the service."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray


def doubled(x: NDArray[Any]) -> NDArray[Any]:
    return x * 2


def noisy(x: NDArray[Any], *, rng: np.random.Generator) -> NDArray[Any]:
    return x + rng.random(x.shape)


def slow(x: NDArray[Any]) -> NDArray[Any]:
    threading.Event().wait(0.02)
    return x


def one_of_two(dataset: Any, folder: Path, name: str) -> list[int]:
    """Return the first row of each batch; wait after the first batch until both have one."""
    firsts = []
    for batch in dataset:
        firsts.append(int(batch[0]))
        if len(firsts) == 1:
            (folder / name).touch()
            while len([*folder.iterdir()]) < 2:
                threading.Event().wait(0.01)
    return firsts


def by_process(x: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    return slow(x), np.full(len(x), os.getpid())


def fails(x: NDArray[Any]) -> NDArray[Any]:
    if (x >= 500).any():
        raise OSError("the disk is on fire")
    return x


def stops(x: NDArray[Any]) -> NDArray[Any]:
    raise StopIteration("no more")
