"""Write a loader as JSON.

Numbers and text are unchanged, a tuple is a list, and an object of a frozen dataclass is
``{"class": "package.module:Class", field: …}``. All else is a dict of one tag, such as
``{"range": [start, stop, step]}``.
"""

from __future__ import annotations

import base64
import math
import sys
from functools import partial, reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocdata.box import Ints
from oocdata.datasets.dataset import Described, fields_of
from oocdata.datasets.labels import FolderLabels
from oocdata.describe.content import content
from oocdata.engines.axis_views import Taken
from oocdata.engines.columns import Columns
from oocdata.engines.dtypes import check_dtype, dtype_text
from oocdata.engines.memory_array import Numbers
from oocdata.engines.mixed_shapes import PaddingMask
from oocdata.engines.padded import PaddedRows, RowLengths, RowMask
from oocdata.engines.ragged_rows import RaggedRows
from oocdata.engines.source import RowSource, Source
from oocdata.engines.wrapped import Relabelled
from oocdata.errors import DescriptionError, SourceError, UnsupportedDtypeError
from oocdata.formats.paths import is_url

MADE_OF_PARTS = (
    Columns | FolderLabels | Numbers | PaddedRows | PaddingMask | RaggedRows | RowLengths | RowMask
    | Taken
)  # fmt: skip
"""Sources that are described by their fields; the others by how they are opened."""

_OPEN = "Open it by its path or URL; save it to a file if it has none."
_SAVE = "Save it to a file, and open that by its path."
_MODULE = (
    "Define it in a module that other processes can import; pass what it needs besides the batch "
    "as arguments of functools.partial, or as fields of a frozen dataclass with `__call__`."
)
_PLAIN = "Make its class a frozen dataclass, with fields of numbers, text, tuples and arrays."


def is_frozen(kind: type) -> bool:
    """Return whether a class is a frozen dataclass."""
    return bool(getattr(getattr(kind, "__dataclass_params__", None), "frozen", False))


def _is_part(value: Any) -> bool:
    """Return whether an object is one of oocdata's dataclasses that their fields describe."""
    if isinstance(value, Described | MADE_OF_PARTS):
        return True
    is_own = is_frozen(type(value)) and type(value).__module__.startswith("oocdata.")
    return is_own and not isinstance(value, Source)


class Encoder:
    """Encoder of objects as JSON; `place` is the path to an object, for error messages.

    If a list `objects` is given, leaves (arrays, sources, functions) are appended to it, repeats
    too, and JSON refers to them by number. Otherwise JSON describes how another machine creates
    them.
    """

    def __init__(self, objects: list[Any] | None = None) -> None:
        self._objects = objects

    def encode(self, value: Any, place: str) -> Any:
        """Return an object as JSON; raise `DescriptionError` if it can't be described."""
        if value is None or type(value) in (bool, int, str):
            return value
        if isinstance(value, np.bool_ | np.integer):
            return value.item()
        if type(value) is float:
            return value if math.isfinite(value) else {"float": repr(value)}
        if isinstance(value, tuple | list):
            encoded = [self.encode(part, f"{place}.{at}") for at, part in enumerate(value)]
            return {"list": encoded} if isinstance(value, list) else encoded
        if type(value) is dict:
            return self._dict(value, place)
        if isinstance(value, range | slice):
            bounds = (value.start, value.stop, value.step)
            return {type(value).__name__: [self.encode(bound, place) for bound in bounds]}
        if isinstance(value, np.dtype):
            return {"dtype": dtype_text(value)}
        if _is_part(value):
            parts = value.describe() if isinstance(value, Described) else fields_of(value)
            return self.named(self.class_name(type(value)), parts, place)
        return self.leaf(value, place)

    def class_name(self, kind: type) -> str:
        """Return the import path of a class of oocdata."""
        return import_path(kind)

    def named(self, name: str, parts: dict[str, Any], place: str) -> dict[str, Any]:
        """Return an object with named parts as JSON."""
        encoded = {part: self.encode(value, f"{place}.{part}") for part, value in parts.items()}
        return {"class": name, **encoded}

    def _dict(self, value: dict[Any, Any], place: str) -> Any:
        if not all(type(name) is str for name in value):
            raise _error(place, f"it has the names {list(value)}. Names must be text.")
        pairs = [[name, self.encode(part, f"{place}.{name}")] for name, part in value.items()]
        return {"dict": pairs}

    def leaf(self, value: Any, place: str) -> Any:
        """Return an array, a source, a function, or an object of a user's class as JSON."""
        if self._objects is not None:
            self._objects.append(value)
            return {"beside": len(self._objects) - 1}
        try:
            return self._portable(value, place)
        except (DescriptionError, SourceError):  # complete already
            raise
        except ValueError as error:
            hint = _MODULE if callable(value) else _PLAIN
            hint = _SAVE if hasattr(value, "shape") else hint
            raise _error(place, f"{error}. {hint}") from error

    def _portable(self, value: Any, place: str) -> Any:
        if isinstance(value, Source):
            return self._source(value, place)
        if isinstance(value, np.ndarray) and value.dtype == np.int64 and value.ndim == 1:
            return {"int64": encode_integers(value)}
        if isinstance(value, np.ndarray | np.generic):
            try:
                return {"array": encode_array(value)}
            except UnsupportedDtypeError as error:
                raise ValueError(error.message) from error
        if type(value) is partial:
            parts: list[Any] = [value.func, value.args, dict(value.keywords)]
            return {"partial": [self.encode(part, place) for part in parts]}
        if is_frozen(type(value)):
            return self.named(import_path(type(value)), fields_of(value), place)
        if not callable(value):
            raise ValueError(f"it is an object of {type(value).__qualname__}")
        return {"import": import_path(value)}

    def _source(self, source: Source, place: str) -> Any:
        storage, rows = source.storage(), getattr(source, "rows", None)
        opened = storage.opened
        if opened is not None and _is_in_local_store(opened.get("target")):
            raise _error(
                place, "it is read through a store object of this process. Open it by URL."
            )
        if opened is None and isinstance(rows, RowSource):
            opened = {"target": rows}
        if opened is None and is_frozen(type(source)) and type(source) is not Relabelled:
            return self.named(import_path(type(source)), fields_of(source), place)
        if opened is None:
            raise _error(place, f"it exists in this process only: {storage.format}. {_OPEN}")
        if storage.cache:
            opened = {**opened, "cache": storage.cache}
        parts = {
            "opened": {name: self.encode(part, place) for name, part in opened.items()},
            "shape": list(source.shape),
            "dtype": dtype_text(source.dtype),
            "content": content(source),
        }
        return {"source": parts}


def _is_in_local_store(target: Any) -> bool:
    """Return whether a target is in a store object that the user opened in this process."""
    if not (isinstance(target, str) and is_url(target)):
        return False
    from oocdata.stores.user_stores import is_user_store  # not imported for local files

    return is_user_store(target)


def _error(place: str, reason: str) -> DescriptionError:
    return DescriptionError(
        f"every part of a loader must be describable; `{place}` is not: {reason}"
    )


def encode_integers(numbers: Ints) -> list[Any]:
    """Return 1-D int64 numbers as the first number and the differences; see `encode_array`.

    Rows selected by a mask, and bounds of episodes, ascend in small steps, which fit into one or
    two bytes. Nothing is compressed, because a compressor's output changes with its version.
    """
    if len(numbers) == 0:
        return []
    steps = np.diff(numbers)  # overflow wraps around here and in `decode_integers`
    low, high = int(steps.min(initial=0)), int(steps.max(initial=0))
    kind = np.min_scalar_type(min(low, -1 - high))  # signed, because its argument is negative
    return [int(numbers[0]), encode_array(steps.astype(kind))]


def encode_array(array: NDArray[Any] | np.generic) -> list[Any]:
    """Return an array of any shape as ``[dtype, shape, base64]``, in C order."""
    kind = check_dtype(array.dtype).newbyteorder("<")
    stored: Any = np.ascontiguousarray(array, kind).ravel().view(np.uint8)  # without a copy
    text = base64.b64encode(stored).decode("ascii")
    return [dtype_text(kind), list(array.shape), text]


def import_path(thing: Any) -> str:
    """Return ``module:name`` of a class or function; raise ValueError if it can't be imported."""
    module = getattr(thing, "__module__", None)
    name = getattr(thing, "__qualname__", getattr(thing, "__name__", None))
    if not isinstance(module, str) or not isinstance(name, str):
        raise ValueError(f"{type(thing).__name__} objects have no import path")
    if module in ("__main__", "__mp_main__"):
        raise ValueError(
            f"{name} is defined in the script itself, which other processes can't import"
        )
    if "<lambda>" in name:
        raise ValueError("a lambda has no name")
    if "<locals>" in name:
        raise ValueError(f"{name} is defined inside a function, from where it can't be imported")
    if attribute_at(sys.modules.get(module), name) is not thing:
        raise ValueError(f"importing {module}:{name} gives another object")
    return f"{module}:{name}"


def attribute_at(module: Any, name: str) -> Any:
    """Return the attribute of a module with a dotted name; None if there is none."""
    return reduce(lambda value, part: getattr(value, part, None), name.split("."), module)
