"""From a loader to JSON.

===================  =================================================
in Python            in JSON
===================  =================================================
None, bool, int, …   as it is (a float that is no number, by its name)
tuple, list          a list
a description        an object with "kind" and public names
dict                 ``{"dict": [[name, value], …]}``, in its order
range, slice         ``{"range": [start, stop, step]}``
dtype                ``{"dtype": "<f4"}``
array of numbers     ``{"int64": …}``, ``{"array": …}``: `arrays`
class, function      ``{"import": "package.module:name"}``
functools.partial    ``{"partial": [function, [argument, …], {"dict": …}]}``
frozen dataclass     ``{"object": ["package.module:Class", {"dict": …}]}``
source               ``{"source": {"opened": …, "shape": …, …}}``
any of the last six  ``{"beside": number}`` with worker processes
===================  =================================================
"""

from __future__ import annotations

import math
from dataclasses import fields
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from oocdata.blocks import BlockIds, Blocks
from oocdata.describe.arrays import encode_array, encode_integers
from oocdata.describe.content import content
from oocdata.describe.names import import_path
from oocdata.engines.source import RowSource, Source
from oocdata.errors import DescriptionError, SourceError, UnsupportedDtypeError
from oocdata.order import BlockShuffle, Sequential, Shuffle

if TYPE_CHECKING:
    from oocdata.loader import Loader

__all__ = ["LOADER", "ORDERS", "Beside", "Encoder", "Portable", "described"]

LOADER: dict[str, type | tuple[type, ...]] = {
    "batch_size": int,
    "seed": int,
    "drop_remainder": bool,
    "shuffle": (bool, str),
    "reason": str,
    "workers": int,
    "num_shards": int,
    "index": int,
}
"""What is described of a loader besides its dataset and order, and of which type it is."""

ORDERS: dict[str, type] = {
    "sequential": Sequential,
    "shuffle": Shuffle,
    "block_shuffle": BlockShuffle,
    "blocks": Blocks,
    "block_ids": BlockIds,
}
"""Dataclasses of public fields, by their kinds."""

_KINDS = {kind: name for name, kind in ORDERS.items()}

_OPEN = "Open it by its path or URL; save it to a file if it has none."
_SAVE = "Save it to a file, and open that by its path."
_MODULE = (
    "Define it in a module that others can import too; what it needs beside the batch, as "
    "arguments of functools.partial or fields of a frozen dataclass with `__call__`."
)
_PLAIN = "Make its class a frozen dataclass, with fields of numbers, text, tuples and arrays."


def described(loader: Loader) -> dict[str, Any]:
    """Return what a loader is made of."""
    parts = {name: getattr(loader, name) for name in LOADER}
    return {"kind": "loader", **parts, "order": loader.order, "dataset": loader.dataset.describe()}


def is_frozen(kind: type) -> bool:
    """Return whether a class is a frozen dataclass."""
    return bool(getattr(getattr(kind, "__dataclass_params__", None), "frozen", False))


def fields_of(value: Any) -> dict[str, Any]:
    """Return the fields that a dataclass is made from again."""
    return {field.name: getattr(value, field.name) for field in fields(value) if field.init}


class Encoder:
    """Writes what is described as JSON; how leaves are written is up to its kinds."""

    def encode(self, value: Any, place: str) -> Any:
        """Return JSON.

        Parameters
        ----------
        value : object
        place : str
            Where it stands, for messages.

        Raises
        ------
        oocdata.errors.DescriptionError
        """
        if value is None or type(value) in (bool, int, str):
            return value
        if isinstance(value, np.bool_ | np.integer):
            return value.item()
        if type(value) is float:
            return value if math.isfinite(value) else {"float": repr(value)}
        if isinstance(value, tuple | list):
            return [self.encode(part, f"{place}.{at}") for at, part in enumerate(value)]
        if type(value) is dict:
            return self._dict(value, place)
        if isinstance(value, range | slice):
            bounds = (value.start, value.stop, value.step)
            return {type(value).__name__: [self.encode(bound, place) for bound in bounds]}
        if isinstance(value, np.dtype):
            return {"dtype": value.str}
        if type(value) in _KINDS:
            return self._dict({"kind": _KINDS[type(value)], **fields_of(value)}, place)
        return self.leaf(value, place)

    def _dict(self, value: dict[Any, Any], place: str) -> Any:
        if isinstance(value.get("kind"), str):
            return {name: self.encode(part, f"{place}.{name}") for name, part in value.items()}
        if not all(type(name) is str for name in value):
            raise self.error(place, f"it has the names {list(value)}. Names must be text.")
        parts = value.items()
        return {"dict": [[name, self.encode(part, f"{place}.{name}")] for name, part in parts]}

    def leaf(self, value: Any, place: str) -> Any:
        """Return JSON of an array, a source, a function, or an object of the user's."""
        raise NotImplementedError

    @staticmethod
    def error(place: str, reason: str) -> DescriptionError:
        """Return the error that something can't travel."""
        return DescriptionError(
            f"all of a loader must be able to travel; `{place}` can't: {reason}"
        )


class Portable(Encoder):
    """For other machines, which see the same files and can import the same functions."""

    def leaf(self, value: Any, place: str) -> Any:
        """Return how another process makes it again; what it can't make is refused."""
        try:
            if isinstance(value, Source):
                return self._source(value, place)
            if isinstance(value, np.ndarray | np.generic):
                return _array(value)
            if type(value) is partial:
                parts: list[Any] = [value.func, list(value.args), dict(value.keywords)]
                return {"partial": [self.encode(part, place) for part in parts]}
            if is_frozen(type(value)):
                return {"object": [import_path(type(value)), self._fields(value, place)]}
            if not callable(value):
                raise ValueError(f"it is an object of {type(value).__qualname__}")
            return {"import": import_path(value)}
        except DescriptionError:  # of a part
            raise
        except SourceError:  # of a file
            raise
        except ValueError as error:
            hint = _MODULE if callable(value) else _PLAIN
            hint = _SAVE if hasattr(value, "shape") else hint
            raise self.error(place, f"{error}. {hint}") from error

    def _source(self, source: Source, place: str) -> Any:
        """Return how a source is opened, and what tells it from others."""
        storage, given = source.storage(), source.storage().opened
        rows = getattr(source, "rows", None)
        if given is None and isinstance(rows, RowSource):
            given = {"target": rows}
        if given is None and is_frozen(type(source)):
            return {"object": [import_path(type(source)), self._fields(source, place)]}
        if given is None:
            raise self.error(place, f"it is of this process alone: {storage.format}. {_OPEN}")
        opened = {name: self.encode(part, place) for name, part in given.items()}
        shape, dtype = list(source.shape), source.dtype.str
        return {
            "source": {
                "opened": opened, "shape": shape, "dtype": dtype, "content": content(source)
            }
        }  # fmt: skip

    def _fields(self, value: Any, place: str) -> Any:
        parts = fields_of(value)
        return {"dict": [[name, self.encode(parts[name], f"{place}.{name}")] for name in parts]}


def _array(array: np.ndarray[Any, Any] | np.generic) -> Any:
    if isinstance(array, np.ndarray) and array.dtype == np.int64 and array.ndim == 1:
        return {"int64": encode_integers(array)}
    try:
        return {"array": encode_array(array)}
    except UnsupportedDtypeError as error:
        raise ValueError(error.message) from error


class Beside(Encoder):
    """For worker processes of this machine, which get objects beside the description.

    Parameters
    ----------
    objects : list
        Each is appended once.
    """

    def __init__(self, objects: list[Any]) -> None:
        self._objects = objects
        self._numbers: dict[int, int] = {}

    def leaf(self, value: Any, place: str) -> Any:
        """Return the number of an object."""
        number = self._numbers.setdefault(id(value), len(self._objects))
        if number == len(self._objects):
            self._objects.append(value)
        return {"beside": number}
