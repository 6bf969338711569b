"""Python functions that a graph calls by a name of ours, also in another process.

TensorFlow's py-functions are named by a number that it counts up, so a graph that calls one means
nothing to another process. Here a function has a fixed name, which each process that is to answer
gives to its own function; the graph may then run in any of them, e.g. in a worker of tf.data
service. Nothing but the name and the tensors travels.

The op is public (`tf.raw_ops.PyFuncStateless`); the table of names is not. This is the only module
that touches it, and it looks before: where TensorFlow keeps its functions otherwise, that is a
clear error.
"""

from __future__ import annotations

from collections.abc import Callable, MutableMapping, Sequence
from typing import Any

import tensorflow as tf

from oocdata.errors import MissingDependencyError

__all__ = ["call", "register"]

_held: dict[str, Callable[..., Any]] = {}
"""TensorFlow's own table does not keep them."""


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


def call(name: str, inputs: Sequence[Any], outputs: Sequence[Any]) -> list[tf.Tensor]:
    """Return the op that calls the function of a name, in the process where the graph runs.

    `outputs` are the dtypes of what it returns. tf.data may call it for several elements at a time.
    """
    made: list[tf.Tensor] = tf.raw_ops.PyFuncStateless(
        input=list(inputs), token=name, Tout=list(outputs)
    )
    return made
