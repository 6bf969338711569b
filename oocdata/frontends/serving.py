"""What a worker of a cluster does: reads the runs of steps that a graph asks for by description.

The graph comes from whoever trains, over the network. What it says is a description (JSON), an
epoch and a run of steps; the loader is made of that here, from files as this process sees them, and
with functions from the modules that it was started with.

TensorFlow's py-functions are named by a number that it counts up, so a graph that calls one means
nothing to another process. Here a function has a fixed name, which each process that is to answer
gives to its own function. The op that calls it is public (`tf.raw_ops.PyFuncStateless`, which
tf.data may call for several elements at a time); the table of names is not. This is the only module
that touches it, and it looks before: where TensorFlow keeps its functions otherwise, that is a
clear error.
"""

from __future__ import annotations

import atexit
import threading
from collections.abc import Callable, Iterable, MutableMapping
from functools import lru_cache
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from oocdata.describe import from_json
from oocdata.errors import DescriptionError, MissingDependencyError, MissingFileError
from oocdata.frontends.batching import tensors_of
from oocdata.frontends.shutdown import calls
from oocdata.loader import Loader
from oocdata.runs import Run

__all__ = ["READ", "TICK", "Readers", "answer", "register"]

READ = "oocdata.read.2"
"""The name by which graphs ask for a run; another number for other arguments or results."""

TICK = "oocdata.tick.1"
"""The name by which graphs wait a little, where there is nothing more to read."""

_MOST_LOADERS = 16

_OTHER_FOLDER = " A worker opens the paths that the trainer opens. Do they see the same folder?"

_TICK_SECONDS = 0.2

_held: dict[str, Callable[..., Any]] = {}
"""TensorFlow's own table does not keep them."""


class Readers:
    """The loaders of a worker, by their descriptions; the ones used last are kept.

    Functions may be imported from the modules and packages of `allow`.
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


def register(name: str, function: Callable[..., Any]) -> None:
    """Give this process's function to a name; one that it had before is forgotten.

    The name begins with ``"oocdata."``, so that it is none of TensorFlow's. The function gets the
    tensors as arrays (a string as `bytes`), in any thread, and returns a list of arrays.
    MissingDependencyError if this TensorFlow keeps its functions in another way.
    """
    try:
        from tensorflow.python.ops import script_ops

        table = script_ops._py_funcs._funcs
        if not isinstance(table, MutableMapping):
            raise TypeError(f"a table of functions that is a {type(table).__name__}")
        table[name] = _held[name] = function
        if script_ops._py_funcs.get(name) is not function:
            raise TypeError("another table of functions")
    except (ImportError, AttributeError, TypeError) as error:
        raise MissingDependencyError(
            "tf.data service needs a TensorFlow that keeps its Python functions as 2.20 and 2.21 "
            f"do; version {tf.__version__} has {error}. Install another version of TensorFlow, "
            "or read without `service`."
        ) from error


def answer(allow: Iterable[str] = ()) -> None:
    """Let the graphs that run in this process read, with functions of these modules."""
    register(READ, Readers(allow).read)
    register(TICK, _tick)
    atexit.register(calls.close)
