"""From JSON to a loader: nothing is made that was not checked."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from oocdata.datasets.concat import Concat
from oocdata.datasets.dataset import Dataset, Draw
from oocdata.datasets.map import Map
from oocdata.datasets.mix import Mix
from oocdata.datasets.patches import Patches
from oocdata.datasets.request import of_sources
from oocdata.datasets.sparse import Sparse
from oocdata.datasets.spec import ArraySpec
from oocdata.datasets.stacked import Constant, Stacked
from oocdata.datasets.view import View
from oocdata.datasets.windows import Windows
from oocdata.datasets.zip import Zip
from oocdata.describe.arrays import decode_array, decode_dtype, decode_integers
from oocdata.describe.content import content
from oocdata.describe.encoding import LOADER, ORDERS, is_frozen
from oocdata.describe.names import find
from oocdata.engines.blocked import blocked
from oocdata.engines.dtypes import dtype_text
from oocdata.engines.source import Source
from oocdata.errors import DescriptionError, OocdataError
from oocdata.formats.opening import open_source
from oocdata.index import as_count
from oocdata.loader import Loader

__all__ = ["Decoder"]

_DATASETS: dict[str, Any] = {
    "view": View, "windows": Windows, "patches": Patches, "map": Map, "zip": Zip,
    "concat": Concat, "mix": Mix, "sparse": Sparse,
    "stacked": Stacked, "constant": Constant,
}  # fmt: skip
"""By their kinds, and what they are made of."""

_FLOATS = {repr(value): value for value in map(float, ("nan", "inf", "-inf"))}


def _whole(value: Any) -> int:
    if type(value) is not int:
        raise ValueError(f"{value!r} is no whole number")
    return value


_PLAIN: dict[str, Callable[[Any], Any]] = {
    "range": lambda parts: range(*map(_whole, parts)),
    "slice": lambda parts: slice(*[part if part is None else _whole(part) for part in parts]),
    "float": _FLOATS.__getitem__,
    "dtype": decode_dtype,
    "int64": decode_integers,
    "array": lambda parts: decode_array(parts)[()],  # one of no axes becomes a scalar
}
"""What is made of numbers and texts alone, by its tag."""


class Decoder:
    """Decodes one loader; `place` says where a part stands, for messages.

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
            return {_text(name): self.decode(part, f"{place}.{name}") for name, part in parts}
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
        rest, source = dict(value), value.get("source")
        kind = rest.pop("kind")
        opened = kind == "view" and isinstance(source, dict) and set(source) == {"source"}
        if opened:
            del rest["source"]
        parts = {name: self.decode(part, f"{place}.{name}") for name, part in rest.items()}
        if opened:
            parts["source"] = self._source(value["source"]["source"], value["axes"], place)
        if kind == "loader":
            return _loader(**parts)
        if kind in ORDERS:
            return ORDERS[kind](**parts)
        if kind not in _DATASETS:
            raise ValueError(f"{kind!r} is no kind of dataset or order")
        if kind == "view":
            decode_dtype(parts["dtype"])
            if not isinstance(parts["source"], Source):
                raise ValueError("a view must have a source")
        if kind == "map":
            parts["spec"] = _spec(parts["spec"])
        made = _DATASETS[kind].of_description(parts)
        return _checked(made) if isinstance(made, Dataset) else made

    def _source(self, parts: dict[str, Any], axes: Any, place: str) -> Source:
        """Return a source, opened once for all views that read it, if it is what was described."""
        known = json.dumps([parts, axes])
        if known in self._opened:
            return self._opened[known]
        place = f"{place}.source"
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
            return find(_text(path), self._allow)
        except ValueError as error:
            raise ValueError(
                f"{path!r} can't be imported: {error}. Allowed are "
                f"{', '.join(self._allow) or 'none'}"
            ) from error


def _loader(*, dataset: Any, order: Any, **parts: Any) -> Loader:
    """Return a loader of checked parts."""
    for name, kinds in LOADER.items():
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
    for request in of_sources(dataset.requests(positions, Draw(positions=positions))):
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


def _text(value: Any) -> str:
    if type(value) is not str:
        raise ValueError(f"{value!r} is no text")
    return value
