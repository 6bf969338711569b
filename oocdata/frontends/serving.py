"""Read batches in a worker of a cluster, for the graphs that trainers send.

A graph holds a description (JSON), an epoch and a run of steps. The worker makes the loader of the
description, with files as it sees them, and functions from the modules that it was started with.

TensorFlow names Python functions by a counter, so a graph that calls one means nothing to another
process. Here a function has a fixed name, which each worker registers for its own function. The op
that calls it is public (`tf.raw_ops.PyFuncStateless`), the table of names private: only this module
uses it, and checks it first.
"""

from __future__ import annotations

import atexit
import threading
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from oocdata.box import Ints
from oocdata.describe import from_json
from oocdata.errors import DescriptionError, MissingDependencyError, MissingFileError
from oocdata.frontends.batching import stack_batches
from oocdata.frontends.shutdown import calls
from oocdata.loader import Loader
from oocdata.runs import Run

READ = "oocdata.read.3"
"""Name by which graphs read a run. Its number changes with the arguments or results."""

TICK = "oocdata.tick.1"
"""Name by which graphs wait a little, when there is nothing more to read."""

_MOST_LOADERS = 16

_OTHER_FOLDER = " A worker opens the paths that the trainer opens. Do they see the same folder?"

_TICK_SECONDS = 0.2

_registered: dict[str, Callable[..., Any]] = {}
"""Functions by name; TensorFlow's own table holds only weak references."""


class Readers:
    """The loaders of a worker by description; the most recently used ones are kept.

    Functions may be imported from the modules and packages of `allow`.
    """

    def __init__(self, allow: Iterable[str] = ()) -> None:
        self._allow = tuple(allow)
        self._lock = threading.Lock()
        self.loader = lru_cache(_MOST_LOADERS)(self._make)

    def _make(self, description: bytes, opening: bytes) -> Loader:
        # `opening` differs between the datasets of a trainer: each opens its files anew.
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
        """Read steps `start` to `stop - 1`; see `oocdata.frontends.batching.stack_batches`."""
        with calls:
            try:
                with self._lock:  # else two threads would make one loader each
                    loader = self.loader(description, opening)
                run = Run(int(epoch), int(start), int(stop))
                loader.positions(run.stop - 1, run.epoch)  # checks step and epoch
                return stack_batches(loader.read(run), loader)
            except Exception as error:  # StopIteration would end the epoch silently
                hint = _OTHER_FOLDER if isinstance(error, MissingFileError) else ""
                raise RuntimeError(f"{type(error).__name__}: {error}{hint}") from error


def _tick(number: Any) -> list[Ints]:
    with calls:
        threading.Event().wait(_TICK_SECONDS)
        return [np.array(-1)]


def register(name: str, function: Callable[..., Any]) -> None:
    """Register a function of this process under a name, replacing an earlier one.

    The function is called in any thread, with the tensors as arrays (a string as `bytes`), and
    returns a list of arrays. Raises MissingDependencyError if this TensorFlow stores its functions
    differently.
    """
    try:
        from tensorflow.python.ops import script_ops

        script_ops._py_funcs._funcs[name] = _registered[name] = function
        if script_ops._py_funcs.get(name) is not function:
            raise TypeError("another table of functions")
    except (ImportError, AttributeError, TypeError) as error:
        raise MissingDependencyError(
            "tf.data service needs a TensorFlow that keeps its Python functions as 2.20 and 2.21 "
            f"do; version {tf.__version__} has {error}. Install another version of TensorFlow, "
            "or read without `service`."
        ) from error


def serve(allow: Iterable[str] = ()) -> None:
    """Serve the graphs that run in this process, with functions of the modules `allow`."""
    register(READ, Readers(allow).read)
    register(TICK, _tick)
    atexit.register(calls.close)
