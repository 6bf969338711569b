"""What a worker of a cluster does: reads the runs of steps that a graph asks for by description.

The graph comes from whoever trains, over the network. What it says is a description (JSON), an
epoch and a run of steps; the loader is made of that here, from files as this process sees them, and
with functions from the modules that it was started with.
"""

from __future__ import annotations

import atexit
import threading
from collections import OrderedDict
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from oocdata.describe import from_json
from oocdata.errors import MissingFileError
from oocdata.frontends.batching import tensors_of
from oocdata.frontends.pyfunctions import register
from oocdata.frontends.shutdown import calls
from oocdata.runs import Run

if TYPE_CHECKING:
    from oocdata.loader import Loader

__all__ = ["READ", "TICK", "Readers", "answer", "nth_run", "stretches"]

READ = "oocdata.read.1"
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
        self.allow = tuple(allow)
        self._lock = threading.Lock()
        self._loaders: OrderedDict[tuple[bytes, bytes], Loader] = OrderedDict()

    def loader(self, description: bytes, opening: bytes) -> Loader:
        """Return the loader that a description is of, made when it is first asked for.

        Parameters
        ----------
        description : bytes
            As `oocdata.describe.as_json` writes it.
        opening : bytes
            Whatever tells one dataset of a trainer from the next: each opens its files anew.

        Raises
        ------
        oocdata.errors.DescriptionError, oocdata.errors.SourceError
            See `oocdata.describe.from_json`.
        """
        with self._lock:
            found = self._loaders.get((description, opening))
            if found is None:
                text = description.decode(errors="replace")
                found = self._loaders[description, opening] = from_json(text, allow=self.allow)
                while len(self._loaders) > _MOST_LOADERS:
                    self._loaders.popitem(last=False)
            self._loaders.move_to_end((description, opening))
            return found

    def read(
        self,
        description: bytes,
        opening: bytes,
        epoch: Any,
        steps: NDArray[np.int64],
        together: Any,
        number: Any,
    ) -> list[NDArray[Any]]:
        """Read a run of steps.

        Parameters
        ----------
        description, opening : bytes
            See `loader`.
        epoch : int
        steps : ndarray of int64, shape (n, 2)
            Stretches of the epoch; see `stretches`.
        together, number : int
            Which run of them; see `nth_run`.

        Returns
        -------
        list of ndarray
            First step and end of the run, shape (2,). Then the full batches of each array of an
            element, shape (steps, batch, …); and where the loader has a short one, that one of
            each, shape (0 or 1, its length, …).
        """
        with calls:
            try:
                loader = self.loader(description, opening)
                start, stop = nth_run(steps, int(together), int(number))
                loader.positions(stop - 1, int(epoch))  # checks both
                batches = loader.run(Run(int(epoch), start, stop))
                return [np.array([start, stop]), *tensors_of(batches, loader)]
            except Exception as error:  # StopIteration would end the epoch in silence
                hint = _OTHER_FOLDER if isinstance(error, MissingFileError) else ""
                raise RuntimeError(f"{type(error).__name__}: {error}{hint}") from error


def stretches(steps: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return ascending steps as stretches of neighbours, shape (n, 2): first step and end.

    Examples
    --------
    >>> stretches(np.array([0, 1, 2, 3, 7])).tolist()
    [[0, 4], [7, 8]]
    """
    firsts = np.flatnonzero(np.diff(steps, prepend=-2) != 1)
    ends = np.append(firsts[1:], len(steps))[: len(firsts)]
    return np.stack([steps[firsts], steps[ends - 1] + 1], axis=1)


def nth_run(steps: NDArray[np.int64], together: int, number: int) -> tuple[int, int]:
    """Return first step and end of one of the runs that stretches are cut into.

    Parameters
    ----------
    steps : ndarray of int64, shape (n, 2)
        As `stretches` returns them.
    together : int
        Steps of a run, at most.
    number : int
        Which run, from 0.

    Examples
    --------
    >>> [nth_run(np.array([[0, 4], [7, 8]]), 3, number) for number in range(3)]
    [(0, 3), (3, 4), (7, 8)]
    """
    ends = np.cumsum(-(-(steps[:, 1] - steps[:, 0]) // together))
    place = int(np.searchsorted(ends, number, side="right"))
    first, end = map(int, steps[place])
    first += (number - (int(ends[place - 1]) if place else 0)) * together
    return first, min(first + together, end)


def _tick(number: Any) -> list[NDArray[np.int64]]:
    with calls:
        threading.Event().wait(_TICK_SECONDS)
        return [np.array(-1)]


def answer(allow: Iterable[str] = ()) -> None:
    """Let the graphs that run in this process read.

    Parameters
    ----------
    allow : iterable of str
        Modules and packages from which functions may be imported.

    Raises
    ------
    oocdata.errors.MissingDependencyError
        If this TensorFlow keeps its functions in another way.
    """
    register(READ, Readers(allow).read)
    register(TICK, _tick)
    atexit.register(calls.close)
