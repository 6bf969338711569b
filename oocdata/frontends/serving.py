"""What a worker of a cluster does: reads the runs of steps that a graph asks for by description.

The graph comes from whoever trains, over the network. What it says is a description (JSON), an
epoch and a run of steps; the loader is made of that here, from files as this process sees them, and
with functions from the modules that it was started with.
"""

from __future__ import annotations

import atexit
import threading
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocdata.describe import from_json
from oocdata.errors import DescriptionError, MissingFileError
from oocdata.frontends.batching import tensors_of
from oocdata.frontends.pyfunctions import register
from oocdata.frontends.shutdown import calls
from oocdata.loader import Loader
from oocdata.runs import Run

__all__ = ["READ", "TICK", "Readers", "answer"]

READ = "oocdata.read.2"
"""The name by which graphs ask for a run; another number for other arguments or results."""

TICK = "oocdata.tick.1"
"""The name by which graphs wait a little, where there is nothing more to read."""

_MOST_LOADERS = 16

_OTHER_FOLDER = " A worker opens the paths that the trainer opens. Do they see the same folder?"

_TICK_SECONDS = 0.2


class Readers:
    """The loaders of a worker, by their descriptions; the ones used last are kept.

    Parameters
    ----------
    allow : iterable of str
        Modules and packages from which functions may be imported.
    """

    def __init__(self, allow: Iterable[str] = ()) -> None:
        self._allow = tuple(allow)
        self._lock = threading.Lock()
        self.loader = lru_cache(_MOST_LOADERS)(self._made)

    def _made(self, description: bytes, opening: bytes) -> Loader:
        # `opening` tells one dataset of a trainer from the next: each opens its files anew.
        loader = from_json(description.decode(errors="replace"), allow=self._allow)
        if not isinstance(loader, Loader):
            raise DescriptionError(
                f"a worker must be asked for a Loader's batches; got those of a "
                f"{type(loader).__name__}, whose generators run beside the trainer."
            )
        return loader

    def read(
        self, description: bytes, opening: bytes, epoch: Any, start: Any, stop: Any
    ) -> list[NDArray[Any]]:
        """Read the steps from `start` to `stop - 1`, as `oocdata.frontends.batching.tensors_of`."""
        with calls:
            try:
                with self._lock:  # or two threads would make one each
                    loader = self.loader(description, opening)
                run = Run(int(epoch), int(start), int(stop))
                loader.positions(run.stop - 1, run.epoch)  # checks both
                return tensors_of(loader.run(run), loader)
            except Exception as error:  # StopIteration would end the epoch in silence
                hint = _OTHER_FOLDER if isinstance(error, MissingFileError) else ""
                raise RuntimeError(f"{type(error).__name__}: {error}{hint}") from error


def _tick(number: Any) -> list[NDArray[np.int64]]:
    with calls:
        threading.Event().wait(_TICK_SECONDS)
        return [np.array(-1)]


def answer(allow: Iterable[str] = ()) -> None:
    """Let the graphs that run in this process read, with functions of these modules.

    Raises
    ------
    oocdata.errors.MissingDependencyError
        If this TensorFlow keeps its functions in another way.
    """
    register(READ, Readers(allow).read)
    register(TICK, _tick)
    atexit.register(calls.close)
