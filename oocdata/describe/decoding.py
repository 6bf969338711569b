"""Read a loader from JSON, importing allowed modules only, and verify its files.

Selections are checked against the array, other fields not against each other.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocdata.box import Ints
from oocdata.datasets.dataset import Dataset
from oocdata.datasets.view import View
from oocdata.describe.content import content
from oocdata.describe.encoding import MADE_OF_PARTS, attribute_at, import_path, is_frozen
from oocdata.engines.blocked import blocked
from oocdata.engines.columns import Columns, select_columns
from oocdata.engines.dtypes import dtype_text, named_dtype
from oocdata.engines.source import Source
from oocdata.errors import DescriptionError, OocdataError
from oocdata.formats.opening import open_source
from oocdata.index import as_count, as_positions

_FLOATS = {repr(value): value for value in map(float, ("nan", "inf", "-inf"))}


def decode_integers(parts: Any) -> Ints:
    """Return the numbers that `encode_integers` wrote; raise ValueError if malformed."""
    if parts == []:
        return np.zeros(0, np.int64)
    first, encoded = parts
    steps = np.concatenate((np.array([first], np.int64), decode_array(encoded)))
    return np.cumsum(steps, dtype=np.int64)


def decode_array(parts: Any) -> NDArray[Any]:
    """Return the array that `encode_array` wrote; raise ValueError if malformed."""
    dtype, shape, encoded = parts
    stored = named_dtype(dtype)
    array = np.frombuffer(base64.b64decode(encoded, validate=True), stored)
    return array.reshape(shape).astype(stored.newbyteorder("="))


_PLAIN: dict[str, Callable[[Any], Any]] = {
    "range": lambda parts: range(*parts),
    "slice": lambda parts: slice(*parts),
    "float": _FLOATS.__getitem__,
    "dtype": named_dtype,
    "int64": decode_integers,
    "array": lambda parts: decode_array(parts)[()],  # a 0-d array becomes a scalar
}
"""Decoders of values that consist of numbers and text only, by tag."""


class Decoder:
    """Decoder of one loader; arguments as of `from_json`.

    In its methods `place` is the path to a part, for error messages.
    """

    def __init__(self, allow: tuple[str, ...], objects: Sequence[Any]) -> None:
        self._allow = allow
        self._objects = objects
        self._opened: dict[str, Source] = {}
        self._axes: Any = None

    def decode(self, value: Any, place: str) -> Any:
        """Return the described object; raise `DescriptionError`, or `SourceError` for a file."""
        try:
            return self._decode(value, place)
        except (OocdataError, RecursionError):
            raise
        except Exception as error:  # malformed input may raise anything
            raise DescriptionError(
                f"a description must be readable; `{place}` is not: {error}."
            ) from error

    def _decode(self, value: Any, place: str) -> Any:
        if value is None or type(value) in (bool, int, float, str):
            return value
        if type(value) is list:
            return tuple(self.decode(part, f"{place}.{at}") for at, part in enumerate(value))
        if type(value) is not dict:
            raise ValueError(f"JSON has no {type(value).__name__}")
        if isinstance(value.get("class"), str):
            return self._object(value, place)
        if len(value) != 1:
            raise ValueError("an object must have a class, or one tag")
        ((tag, parts),) = value.items()
        if tag in _PLAIN:
            return _PLAIN[tag](parts)
        if tag == "list":  # which NumPy does not index by as by a tuple
            return list(self.decode(parts, place))
        if tag == "dict":
            return {name: self.decode(part, f"{place}.{name}") for name, part in parts}
        if tag == "source":
            return self._source(parts, self._axes, place)
        if tag == "beside":
            return self._objects[as_count("beside", parts, at_least=0)]
        if tag == "import":
            return self._find(parts)
        if tag == "partial":
            function, arguments, names = (self.decode(part, place) for part in parts)
            return partial(function, *arguments, **names)
        raise ValueError(f"{tag!r} is no known tag")

    def _object(self, value: dict[str, Any], place: str) -> Any:
        """Return an object of a frozen dataclass: of oocdata, or of a module that is allowed."""
        kind = self._find(value["class"], "oocdata")
        if not (isinstance(kind, type) and (is_frozen(kind) or issubclass(kind, MADE_OF_PARTS))):
            raise ValueError(f"{value['class']!r} is no frozen dataclass")
        before = self._axes
        if issubclass(kind, View):  # its source is opened with these axes
            self._axes = value.get("axes")
        parts = {
            name: self.decode(part, f"{place}.{name}")
            for name, part in value.items()
            if name != "class"
        }
        self._axes = before
        if kind is Columns:
            source, places = parts["source"], parts["places"]
            return select_columns(source, as_positions(places, source.shape[1]))
        decoded = kind(**parts)
        if isinstance(decoded, Dataset):
            _check_boxes(decoded)
        return decoded

    def _source(self, parts: dict[str, Any], axes: Any, place: str) -> Source:
        """Return a source if it is the one described; views of one source share it."""
        if axes is None:
            raise ValueError("a source must be part of a view, which has axes")
        cache_key = json.dumps([parts, axes])
        if cache_key in self._opened:
            return self._opened[cache_key]
        arguments = {
            name: self.decode(part, f"{place}.{name}") for name, part in parts["opened"].items()
        }
        source = blocked(open_source(**{"axis": tuple(axes), **arguments}), tuple(axes))
        actual = {"shape": list(source.shape), "dtype": dtype_text(source.dtype)}
        if all(parts[name] == actual[name] for name in actual):
            actual["content"] = content(source)
        for name, current in actual.items():
            if parts[name] != current:
                raise DescriptionError(
                    f"{parts['opened'].get('target')!r} must be what was described; it is not: "
                    f"`{place}.{name}` was {parts[name]}, and is {current}. Describe the loader "
                    "again."
                )
        self._opened[cache_key] = source
        return source

    def _find(self, path: str, *also: str) -> Any:
        """Return the object of an import path, if a module or package that is allowed defines it.

        Objects that an allowed module merely imported are not allowed.
        """
        module, _, name = path.partition(":")
        try:
            if not any(
                module == each or module.startswith(f"{each}.") for each in (*self._allow, *also)
            ):
                raise ValueError(f"the module {module!r} is not allowed")
            value = attribute_at(import_module(module), name)
            if value is None:
                raise ValueError(f"the module {module!r} has no {name!r}")
            if import_path(value) != path:
                raise ValueError(f"it is defined at {import_path(value)}")
        except (ImportError, ValueError) as error:
            raise ValueError(
                f"{path!r} can't be imported: {error}. Allowed are "
                f"{', '.join(self._allow) or 'none'}"
            ) from error
        return value


def _check_boxes(dataset: Dataset) -> None:
    """Raise if boxes of the outermost rows or windows are outside their arrays."""
    if not len(dataset):
        return
    outermost = {0, len(dataset) - 1}
    for selection in vars(dataset).values():
        if isinstance(selection, np.ndarray) and selection.shape == (len(dataset),):
            outermost |= {int(selection.argmin()), int(selection.argmax())}
    positions = np.array(sorted(outermost), np.int64)
    for request in dataset.boxes(positions):
        ends = request.origins.max(axis=0) + request.extent.spans
        if request.dtype.hasobject != request.source.dtype.hasobject:
            raise ValueError(
                "an array of objects can't be read as numbers, nor one of numbers as objects"
            )
        if (request.origins < 0).any() or (ends > request.source.shape).any():
            raise ValueError("selected positions must be within the array")
