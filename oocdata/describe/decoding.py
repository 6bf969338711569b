"""From JSON to a loader: nothing is made that was not checked."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import fields
from functools import partial
from typing import Any

import numpy as np

from oocdata.datasets.dataset import Dataset, Draw
from oocdata.datasets.map import Map
from oocdata.datasets.patches import Patches
from oocdata.datasets.spec import ArraySpec
from oocdata.datasets.view import View
from oocdata.datasets.windows import Windows
from oocdata.datasets.zip import Zip
from oocdata.describe.arrays import decode_array, decode_dtype, decode_integers
from oocdata.describe.content import content
from oocdata.describe.encoding import LOADER, ORDERS, is_frozen
from oocdata.describe.names import find
from oocdata.engines.blocked import blocked
from oocdata.engines.source import Source
from oocdata.errors import DescriptionError, OocdataError
from oocdata.formats.opening import open_source
from oocdata.index import as_count
from oocdata.loader import Loader

__all__ = ["Decoder"]

_DATASETS: dict[str, Any] = {
    "view": View, "windows": Windows, "patches": Patches, "map": Map, "zip": Zip,
}  # fmt: skip
"""By their kinds."""

_FLOATS = {repr(value): value for value in map(float, ("nan", "inf", "-inf"))}


class Decoder:
    """Decodes one loader.

    Parameters
    ----------
    allow : tuple of str
        Modules and packages that may be imported from.
    beside : sequence
        Objects that the description has the numbers of.
    """

    def __init__(self, allow: tuple[str, ...], beside: Sequence[Any]) -> None:
        self._allow = allow
        self._beside = beside
        self._opened: dict[str, Source] = {}

    def loader(self, described: Any) -> Loader:
        """Return the loader.

        Raises
        ------
        oocdata.errors.DescriptionError
        oocdata.errors.SourceError
            If a file can't be opened.
        """
        loader = self._decode(described, "loader")
        if not isinstance(loader, Loader):
            raise self._error("loader", f"it must be a Loader; got {_short(described)}.")
        return loader

    def _decode(self, value: Any, place: str) -> Any:
        """Return what JSON describes.

        Parameters
        ----------
        value : object
            As `json` reads it.
        place : str
            Where it stands, for messages.
        """
        try:
            return self._made(value, place)
        except (OocdataError, RecursionError):
            raise
        except Exception as error:  # whatever is wrong with it, it is not readable
            raise self._error(place, f"{error}.") from error

    def _made(self, value: Any, place: str) -> Any:
        if value is None or type(value) in (bool, int, float, str):
            return value
        if type(value) is list:
            return tuple(self._decode(part, f"{place}.{at}") for at, part in enumerate(value))
        if type(value) is not dict:
            raise ValueError(f"JSON has no {type(value).__name__}")
        if isinstance(value.get("kind"), str):
            return self._kind(value, place)
        if len(value) != 1:
            raise ValueError("an object must have a kind, or one name that says what it is")
        ((tag, parts),) = value.items()
        if tag in ("range", "slice"):
            if tag == "slice":
                return slice(*[bound if bound is None else _whole(bound) for bound in parts])
            return range(*map(_whole, parts))
        if tag == "dict":
            return {_text(name): self._decode(part, f"{place}.{name}") for name, part in parts}
        if tag == "float":
            return _FLOATS[parts]
        if tag == "dtype":
            return decode_dtype(parts)
        if tag == "int64":
            return decode_integers(parts)
        if tag == "array":
            array = decode_array(parts)
            return array if array.ndim else array[()]
        if tag == "beside":
            return self._beside[as_count("beside", parts, at_least=0)]
        if tag == "import":
            return self._found(parts)
        if tag == "partial":
            function, arguments, names = (self._decode(part, place) for part in parts)
            return partial(function, *arguments, **names)
        if tag == "object":
            return self._object(*parts, place=place)
        raise ValueError(f"{tag!r} is no kind of thing that is described")

    def _kind(self, value: dict[str, Any], place: str) -> Any:
        kind = value["kind"]
        if kind == "view":
            return self._view(value, place)
        parts = {name: self._decode(part, f"{place}.{name}") for name, part in value.items()}
        del parts["kind"]
        if kind == "loader":
            return _loader(**parts)
        if kind in ORDERS:
            return ORDERS[kind](**parts)
        if kind not in _DATASETS:
            raise ValueError(f"{kind!r} is no kind of dataset or order")
        if kind == "map":
            parts["spec"] = _spec(parts["spec"])
        return _checked(_DATASETS[kind].of_description(parts))

    def _view(self, value: dict[str, Any], place: str) -> Dataset:
        rest = {name: part for name, part in value.items() if name not in ("kind", "source")}
        parts = {name: self._decode(part, f"{place}.{name}") for name, part in rest.items()}
        decode_dtype(parts["dtype"])
        axes = parts["axes"]
        source = value["source"]
        if set(source) == {"source"}:
            parts["source"] = self._source(source["source"], axes, f"{place}.source")
        else:
            parts["source"] = self._decode(source, f"{place}.source")
            if not isinstance(parts["source"], Source):
                raise ValueError("a view must have a source")
        return _checked(View.of_description(parts))

    def _source(self, parts: dict[str, Any], axes: Any, place: str) -> Source:
        """Return a source, opened once for all datasets that read it."""
        known = json.dumps([parts, axes])
        if known not in self._opened:
            opened = {
                name: self._decode(part, f"{place}.{name}")
                for name, part in parts["opened"].items()
            }
            found = blocked(open_source(**opened, axis=axes), axes)
            self._opened[known] = self._same(found, parts, place)
        return self._opened[known]

    def _same(self, source: Source, parts: dict[str, Any], place: str) -> Source:
        """Return a source if it is what was described."""
        now = {"shape": list(source.shape), "dtype": source.dtype.str}
        if all(parts[name] == now[name] for name in now):
            now["content"] = content(source)
        for name, found in now.items():
            if parts[name] != found:
                target = parts["opened"].get("target")
                raise DescriptionError(
                    f"{target!r} must be what was described; it is not: `{place}.{name}` was "
                    f"{parts[name]}, and is {found}. Describe the loader again."
                )
        return source

    def _found(self, path: Any) -> Any:
        try:
            return find(_text(path), self._allow)
        except ValueError as error:
            raise ValueError(
                f"{path!r} can't be imported: {error}. Allowed are "
                f"{', '.join(self._allow) or 'none'}"
            ) from error

    def _object(self, path: Any, parts: Any, *, place: str) -> Any:
        kind = self._found(path)
        if not (isinstance(kind, type) and is_frozen(kind)):
            raise ValueError(f"{path!r} is no frozen dataclass")
        given = self._decode(parts, place)
        unknown = set(given) - {field.name for field in fields(kind) if field.init}
        if unknown:
            raise ValueError(f"{path!r} has no field {min(unknown)!r}")
        return kind(**given)

    @staticmethod
    def _error(place: str, reason: str) -> DescriptionError:
        return DescriptionError(f"a description must be readable; `{place}` is not: {reason}")


def _loader(*, dataset: Any, order: Any, **parts: Any) -> Loader:
    """Return a loader of checked parts."""
    for name, kind in LOADER.items():
        kinds = kind if isinstance(kind, tuple) else (kind,)
        if type(parts.get(name)) not in kinds:
            raise ValueError(f"`{name}` must be {kinds[0].__name__}; got {parts.get(name)!r}")
    if set(parts) != set(LOADER):
        raise ValueError(f"a loader has no {min(set(parts) - set(LOADER))!r}")
    if not isinstance(dataset, Dataset):
        raise ValueError(f"`dataset` must be a dataset; got {dataset!r}")
    if not callable(getattr(type(order), "positions", None)):
        raise ValueError(f"`order` must be an Order; got {order!r}")
    size, shards, index = parts["batch_size"], parts["num_shards"], parts["index"]
    if size < 1 or shards < 1 or size % shards or not 0 <= index < shards or not len(dataset):
        raise ValueError(f"no batch of {size} is dealt out to part {index} of {shards}")
    return Loader(dataset=dataset, order=order, **parts)


def _checked(dataset: Dataset) -> Dataset:
    """Return a dataset if the boxes of its outermost rows or windows lie in their arrays."""
    if not len(dataset):
        return dataset
    places = {0, len(dataset) - 1}
    for chosen in vars(dataset).values():
        if isinstance(chosen, np.ndarray) and chosen.shape == (len(dataset),):
            places |= {int(chosen.argmin()), int(chosen.argmax())}
    positions = np.array(sorted(places), np.int64)
    for request in dataset.requests(positions, Draw(positions=positions)):
        ends = request.origins.max(axis=0) + request.extent.spans
        if (request.origins < 0).any() or (ends > request.source.shape).any():
            raise ValueError("what is chosen must lie in the array")
    return dataset


def _spec(tree: Any) -> Any:
    """Return a spec from pairs (shape, dtype), in tuples and dicts."""
    if isinstance(tree, dict):
        return {name: _spec(part) for name, part in tree.items()}
    if len(tree) == 2 and isinstance(tree[1], str):
        return ArraySpec(tuple(map(_whole, tree[0])), decode_dtype(tree[1]))
    return tuple(map(_spec, tree))


def _whole(value: Any) -> int:
    if type(value) is not int:
        raise ValueError(f"{value!r} is no whole number")
    return value


def _text(value: Any) -> str:
    if type(value) is not str:
        raise ValueError(f"{value!r} is no text")
    return value


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
