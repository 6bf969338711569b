"""From JSON to a loader: nothing is imported that is not allowed, and files are those described.

What is chosen must lie in the array: a split is a file that people may edit. Whether other fields
fit to each other is not asked: descriptions are written by `encoding`.
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

from oocdata.datasets.dataset import Dataset, Draw
from oocdata.datasets.request import of_sources
from oocdata.datasets.view import View
from oocdata.describe.content import content
from oocdata.describe.encoding import KINDS, held, import_path, is_frozen
from oocdata.engines.blocked import blocked
from oocdata.engines.columns import Columns, choose_columns
from oocdata.engines.dtypes import dtype_text, named_dtype
from oocdata.engines.source import Source
from oocdata.errors import DescriptionError, OocdataError
from oocdata.formats.opening import open_source
from oocdata.index import as_count, as_positions

__all__ = ["Decoder", "decode_array", "decode_integers", "find"]

_FLOATS = {repr(value): value for value in map(float, ("nan", "inf", "-inf"))}


def decode_integers(parts: Any) -> NDArray[np.int64]:
    """Return the numbers that `encode_integers` wrote, or raise ValueError."""
    if parts == []:
        return np.zeros(0, np.int64)
    first, encoded = parts
    steps = np.concatenate((np.array([first], np.int64), decode_array(encoded)))
    return np.cumsum(steps, dtype=np.int64)


def decode_array(parts: Any) -> NDArray[Any]:
    """Return the array that `encode_array` wrote, or raise ValueError."""
    kind, shape, text = parts
    stored = named_dtype(kind)
    array = np.frombuffer(base64.b64decode(text, validate=True), stored)
    return array.reshape(shape).astype(stored.newbyteorder("="))


_PLAIN: dict[str, Callable[[Any], Any]] = {
    "range": lambda parts: range(*parts),
    "slice": lambda parts: slice(*parts),
    "float": _FLOATS.__getitem__,
    "dtype": named_dtype,
    "int64": decode_integers,
    "array": lambda parts: decode_array(parts)[()],  # one of no axes becomes a scalar
}
"""What is made of numbers and texts alone, by its tag."""


class Decoder:
    """Decodes one loader; `place` says where a part stands, for messages.

    It may import from the modules and packages of `allow`; what lies `beside` the description are
    the objects that it has the numbers of.
    """

    def __init__(self, allow: tuple[str, ...], beside: Sequence[Any]) -> None:
        self._allow = allow
        self._beside = beside
        self._opened: dict[str, Source] = {}
        self._axes: Any = None

    def decode(self, value: Any, place: str) -> Any:
        """Return what JSON describes; raise DescriptionError, or SourceError for a file."""
        try:
            return self._made(value, place)
        except (OocdataError, RecursionError):
            raise
        except Exception as error:  # whatever is wrong with it, it is not readable
            raise DescriptionError(
                f"a description must be readable; `{place}` is not: {error}."
            ) from error

    def _made(self, value: Any, place: str) -> Any:
        if value is None or type(value) in (bool, int, float, str):
            return value
        if type(value) is list:
            return tuple(self.decode(part, f"{place}.{at}") for at, part in enumerate(value))
        if type(value) is not dict:
            raise ValueError(f"JSON has no {type(value).__name__}")
        if isinstance(value.get("kind"), str):
            return self._kind(value, place)
        if len(value) != 1:
            raise ValueError("an object must have a kind, or one name that says what it is")
        ((tag, parts),) = value.items()
        if tag in _PLAIN:
            return _PLAIN[tag](parts)
        if tag == "dict":
            return {name: self.decode(part, f"{place}.{name}") for name, part in parts}
        if tag == "source":
            return self._source(parts, self._axes, place)
        if tag == "beside":
            return self._beside[as_count("beside", parts, at_least=0)]
        if tag == "import":
            return self._found(parts)
        if tag == "partial":
            function, arguments, names = (self.decode(part, place) for part in parts)
            return partial(function, *arguments, **names)
        if tag == "object":
            path, given = parts
            kind = self._found(path)
            if not (isinstance(kind, type) and is_frozen(kind)):
                raise ValueError(f"{path!r} is no frozen dataclass")
            return kind(**self.decode(given, place))
        raise ValueError(f"{tag!r} is no kind of thing that is described")

    def _kind(self, value: dict[str, Any], place: str) -> Any:
        kind = KINDS.get(value["kind"])
        if kind is None:
            raise ValueError(f"{value['kind']!r} is no kind of dataset or order")
        before = self._axes
        if issubclass(kind, View):  # of which the source in it is opened
            self._axes = value.get("axes")
        parts = {
            name: self.decode(part, f"{place}.{name}")
            for name, part in value.items()
            if name != "kind"
        }
        self._axes = before
        if kind is Columns:
            source, places = parts["source"], parts["places"]
            return choose_columns(source, 1, as_positions(places, source.shape[1]))
        made = kind(**parts)
        if isinstance(made, Dataset):
            _check_boxes(made)
        return made

    def _source(self, parts: dict[str, Any], axes: Any, place: str) -> Source:
        """Return a source, opened once for all views that read it, if it is what was described."""
        if axes is None:
            raise ValueError("it must lie in a view, which has axes")
        known = json.dumps([parts, axes])
        if known in self._opened:
            return self._opened[known]
        given = {
            name: self.decode(part, f"{place}.{name}") for name, part in parts["opened"].items()
        }
        source = blocked(open_source(**given, axis=tuple(axes)), tuple(axes))
        now = {"shape": list(source.shape), "dtype": dtype_text(source.dtype)}
        if all(parts[name] == now[name] for name in now):
            now["content"] = content(source)
        for name, found in now.items():
            if parts[name] != found:
                raise DescriptionError(
                    f"{parts['opened'].get('target')!r} must be what was described; it is not: "
                    f"`{place}.{name}` was {parts[name]}, and is {found}. Describe the loader "
                    "again."
                )
        self._opened[known] = source
        return source

    def _found(self, path: Any) -> Any:
        try:
            return find(path, self._allow)
        except ValueError as error:
            raise ValueError(
                f"{path!r} can't be imported: {error}. Allowed are "
                f"{', '.join(self._allow) or 'none'}"
            ) from error


def _check_boxes(dataset: Dataset) -> None:
    """Raise if boxes of the outermost rows or windows do not lie in their arrays."""
    if not len(dataset):
        return
    places = {0, len(dataset) - 1}
    for chosen in vars(dataset).values():
        if isinstance(chosen, np.ndarray) and chosen.shape == (len(dataset),):
            places |= {int(chosen.argmin()), int(chosen.argmax())}
    positions = np.array(sorted(places), np.int64)
    for request in of_sources(dataset.requests(positions, Draw(positions=positions))):
        ends = request.origins.max(axis=0) + request.extent.spans
        if request.dtype.hasobject != request.source.dtype.hasobject:
            raise ValueError("numbers are no objects, nor objects numbers")
        if (request.origins < 0).any() or (ends > request.source.shape).any():
            raise ValueError("what is chosen must lie in the array")


def find(path: str, allow: Sequence[str]) -> Any:
    """Return what has an import path, from allowed modules and packages alone, or raise ValueError.

    It must be called so where it is at home: what an allowed module itself has imported is not
    allowed by that.
    """
    module, _, name = path.partition(":")
    if not any(module == allowed or module.startswith(f"{allowed}.") for allowed in allow):
        raise ValueError(f"the module {module!r} is not allowed")
    try:
        found = held(import_module(module), name)
    except ImportError as error:
        raise ValueError(f"the module {module!r} can't be imported: {error}") from error
    if found is None:
        raise ValueError(f"the module {module!r} has no {name!r}")
    if import_path(found) != path:
        raise ValueError(f"it is at home at {import_path(found)}")
    return found
