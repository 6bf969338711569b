"""From a loader to JSON.

===================  =================================================
in Python            in JSON
===================  =================================================
None, bool, int, …   as it is (a float that is no number, by its name)
tuple                a list
dict                 ``{"dict": [[name, value], …]}``, in its order
range, slice         ``{"range": [start, stop, step]}``
dtype                ``{"dtype": "<f4"}``
array of numbers     ``{"int64": …}``, ``{"array": …}``: `arrays`
class, function      ``{"import": "package.module:name"}``
frozen dataclass     ``{"package.module:Class": {field: value, …}}``
what a process keeps ``{"package.module:Class": [number, [argument, …]]}``
===================  =================================================

The last are objects that hold what a process works out, and say by ``__reduce__`` what they are
made of; those of one number are one object, shared by the sources that have it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any

import numpy as np

from oocdata.datasets.map import Map
from oocdata.datasets.spec import as_spec
from oocdata.description.arrays import encode_array, encode_integers
from oocdata.description.hints import fits, hints_of, is_frozen
from oocdata.description.names import OURS, import_path
from oocdata.description.storage import ANEW, facts
from oocdata.errors import DescriptionError, OocdataError, UnsupportedDtypeError
from oocdata.sources.memory import Memory

__all__ = ["Encoder", "dotted"]

_SAVE = "Save it to a file, and open that by its path."
_MODULE = (
    "Define it in a module that others can import too; what it needs beside the batch, in the "
    "fields of a frozen dataclass with `__call__`."
)


def dotted(place: Sequence[str]) -> str:
    """Return where in a loader something stands, as one would write it.

    Examples
    --------
    >>> dotted(("loader", "dataset", "rows"))
    'loader.dataset.rows'
    """
    return ".".join(place)


class Encoder:
    """Encodes one loader."""

    def __init__(self) -> None:
        # With the objects, or a number of one that is gone could come again.
        self._kept: dict[int, tuple[int, Any]] = {}

    def encode(self, value: Any, place: tuple[str, ...]) -> Any:
        """Return JSON.

        Parameters
        ----------
        value : object
        place : tuple of str
            Where it stands, for messages.

        Raises
        ------
        oocdata.errors.DescriptionError
        """
        if value is None or type(value) in (bool, int, str):
            return value
        if type(value) is float:
            return value if math.isfinite(value) else {"float": repr(value)}
        if type(value) is tuple:
            return [self.encode(part, (*place, str(at))) for at, part in enumerate(value)]
        if type(value) is dict and all(type(name) is str for name in value):
            parts = [[name, self.encode(value[name], (*place, name))] for name in value]
            return {"dict": parts}
        if isinstance(value, range | slice):
            bounds = (value.start, value.stop, value.step)
            return {type(value).__name__: [self.encode(bound, place) for bound in bounds]}
        try:
            return self._object(value, place)
        except ValueError as error:
            if isinstance(error, OocdataError):
                raise
            raise self._error(place, f"{error}. {_MODULE}") from error

    def _object(self, value: Any, place: tuple[str, ...]) -> Any:
        if isinstance(value, np.dtype):
            if np.dtype(value.str) != value:
                raise self._error(place, f"the dtype {value} is not described by {value.str!r}.")
            return {"dtype": value.str}
        if isinstance(value, Memory):
            raise self._error(place, f"it is an array in memory. {_SAVE}")
        if isinstance(value, np.ndarray) and value.dtype == np.int64 and value.ndim == 1:
            return {"int64": encode_integers(value)}
        if isinstance(value, np.ndarray | np.generic):
            try:
                return {"array": encode_array(value)}
            except UnsupportedDtypeError as error:
                raise self._error(place, str(error)) from error
        if isinstance(value, type) or (callable(value) and not is_frozen(type(value))):
            return {"import": import_path(value)}
        path = import_path(type(value))
        if path in ANEW:
            parts = facts(value)
            return {path: {name: self.encode(parts[name], (*place, name)) for name in parts}}
        if "__reduce__" in vars(type(value)) and path.startswith(OURS):
            return {path: self._reduced(value, place)}
        if not is_frozen(type(value)):
            raise self._error(place, f"it is an object of {path}. {_hint(value)}")
        return {path: self._fields(value, place)}

    def _fields(self, value: Any, place: tuple[str, ...]) -> dict[str, Any]:
        if isinstance(value, Map) and value.given is not None:
            value = replace(value, given=as_spec(value.given))
        hints = hints_of(type(value))
        parts = {}
        for one in fields(value):
            if not one.init:
                continue
            part, at = getattr(value, one.name), (*place, one.name)
            parts[one.name] = self.encode(part, at)
            if not fits(part, hints[one.name]):
                raise self._error(at, f"it is {part!r}, and annotated as {one.type}.")
        return parts

    def _reduced(self, value: Any, place: tuple[str, ...]) -> list[Any]:
        try:
            _, arguments = value.__reduce__()
        except OocdataError as error:
            raise self._error(place, str(error)) from error
        number, _ = self._kept.setdefault(id(value), (len(self._kept), value))
        return [number, self.encode(arguments, place)]

    def _error(self, place: Sequence[str], reason: str) -> DescriptionError:
        return DescriptionError(
            f"all of a loader must be able to travel; `{dotted(place)}` can't: {reason}"
        )


def _hint(value: Any) -> str:
    if type(value) is list:
        return "Write a tuple."
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        return _SAVE
    return "Make its class a frozen dataclass, with fields of numbers, text, tuples and arrays."
