"""Compare loaders by fingerprints, which say whether a saved position still means the same batch.

The location of the data, and the number of readers and shards, may change.
"""

from __future__ import annotations

import copyreg
import json
import os
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import partial
from inspect import isdatadescriptor
from random import Random
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from oocdata.datasets.dataset import fields_of
from oocdata.datasets.spec import leaves
from oocdata.describe.content import content, digest, exact_content
from oocdata.describe.encoding import Encoder, encode_array, import_path, is_frozen
from oocdata.describe.functions import codes, function_of, globals_of, is_installed, module_of
from oocdata.engines.source import Source
from oocdata.errors import ArgumentError, RestoreError, UnsupportedDtypeError

if TYPE_CHECKING:
    from oocdata.datasets.dataset import Dataset
    from oocdata.loader import Loader
    from oocdata.stream import Stream

_MOST_TEXT = 2048
"""Characters of a fingerprint; a checkpoint then stays below 4 KiB, with what TensorFlow adds."""

_LONGEST = 80
"""Characters of a value; longer text is replaced by its digest."""

_LEVELS = 6
"""Most levels of parts within parts that have a name of their own."""

_IRRELEVANT = ("reason", "workers", "num_shards", "index")
"""Fields of a loader that change no global batch."""

_CONSTANTS = (bool, int, float, complex, str, bytes, tuple, np.ndarray, np.generic, FunctionType)
"""Kinds of globals that count by value."""

_CHANGING = (
    ModuleType, Random, np.random.Generator, np.random.RandomState, threading.local,
    type(threading.Lock()), type(threading.RLock()),
)  # fmt: skip
"""Kinds of objects that count by name, because their state changes as a program runs."""


def fingerprint(loader: Loader | Stream, **more: str) -> str:
    """Return a text that changes when positions would mean other batches; `more` is added by name.

    It is JSON of at most 2048 characters, with names (``"dataset.rows"``) and text (``"0:10:1"``);
    long texts and deep parts become digests, ``"#…"``.
    """
    parts = {name: part for name, part in fields_of(loader).items() if name not in _IRRELEVANT}
    return _text(loader.dataset, _Digests().named("loader", parts, "loader"), more)


def dataset_fingerprint(dataset: Dataset, *, exact: bool = False) -> str:
    """Return a text that changes when positions would mean other elements; see `fingerprint`.

    If `exact`, it changes whenever a number may have changed, in the data or by the code of a
    function, so that results computed from them are computed again.
    """
    try:
        encoded = _Digests(exact=exact).encode(dataset, "dataset")
    except RecursionError:
        raise ArgumentError(
            "`cache` must be able to tell whether what a function reads has changed; it can't of "
            "objects within objects, or functions calling functions, in so many levels."
        ) from None
    return _text(dataset, encoded, {})


def differences(saved: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """Return a sentence for each name in which fingerprints differ, without the parts of that name.

    It is "`seed` was 7, and is 8", or "`rows` differs" if both are digests.
    """
    sentences: list[str] = []
    differing: list[str] = []
    for name in {**saved, **now}:
        if any(name.startswith(f"{parent}.") for parent in differing):
            continue
        # As texts, because damaged ones may be anything.
        was, is_ = str(saved.get(name, "not there")), str(now.get(name, "not there"))
        if was == is_:
            continue
        hidden = was.startswith("#") and is_.startswith("#")
        differing.append(name)
        sentences.append(f"`{name}` differs" if hidden else f"`{name}` was {was}, and is {is_}")
    return sentences


def check_fingerprint(saved: str, now: str, place: str = "", anew: str = "start anew") -> None:
    """Raise `RestoreError` if two fingerprints differ.

    `place` says where the first one was found, and `anew` how to begin without it, for the message.
    """
    if saved == now:
        return
    try:
        problems = differences(json.loads(saved), json.loads(now))
    except (ValueError, TypeError):  # not what `fingerprint` returns
        problems = ["it was saved by another version of oocdata"]
    if problems:
        raise RestoreError(
            "a position must be restored onto the data and the loader that it was saved with; "
            f"{'; '.join(problems)}{place}. Make the loader as it was then, or {anew}."
        )


def _text(dataset: Any, encoded: dict[str, Any], more: Mapping[str, str]) -> str:
    """Return a fingerprint with as many levels of an encoded loader or dataset as fit into it."""
    encoded = {"elements": ", ".join(map(str, leaves(dataset.spec))), **encoded}
    for levels in range(_LEVELS, -1, -1):
        text = json.dumps({**dict(_flat(encoded, "", levels)), **more}, separators=(",", ":"))
        if len(text) <= _MOST_TEXT:
            break
    return text


def _flat(value: Any, name: str, levels: int) -> Iterator[tuple[str, str]]:
    """Yield the parts of a description, some levels deep, as a dotted name and a text or digest."""
    if levels and isinstance(value, list) and any(isinstance(part, dict) for part in value):
        value = {"class": len(value), **{str(at): part for at, part in enumerate(value)}}
    if levels and isinstance(value, dict) and "class" in value:
        for part, inner in value.items():
            full = name if part == "class" else f"{name}.{part}".removeprefix(".")
            yield from _flat(inner, full, levels - 1)
    else:
        text = str(value)
        yield name or "kind", text if len(text) <= _LONGEST else digest(text)


class _Digests(Encoder):
    """Encoder of leaves as digests. Accepts every object, because none needs to be restored.

    If `exact`, named functions are identified by their code too, and data by every number.
    """

    def __init__(self, *, exact: bool = False) -> None:
        super().__init__()
        self._exact = exact
        self._visited: dict[int, tuple[Any, str]] = {}
        """Objects visited for the current leaf, by id, and the text that stands for each."""
        self._containers: set[int] = set()
        """Lists and dicts around the current value, by id."""

    def encode(self, value: Any, place: str) -> Any:
        """Return an object as JSON; "…" for a list or dict within itself.

        Text is quoted, so that "1" differs from 1, and from a digest or a name.
        """
        if type(value) in (str, bytes):
            return repr(value)
        if type(value) is range:
            return f"{value.start}:{value.stop}:{value.step}"
        if not isinstance(value, list | dict):
            return super().encode(value, place)
        if id(value) in self._containers:
            return "…"
        self._containers.add(id(value))
        encoded = super().encode(value, place)
        self._containers.remove(id(value))
        return encoded

    def class_name(self, kind: type) -> str:
        """Return the name of a class without its module, which may change."""
        return kind.__name__

    def _dict(self, value: dict[Any, Any], place: str) -> Any:
        def quoted(name: Any) -> str:  # if it may be taken for the tag of a class, or as dotted
            plain = type(name) is str and name.isidentifier() and name != "class"
            return name if plain else repr(name)

        return self.named("dict", {quoted(name): part for name, part in value.items()}, place)

    def leaf(self, value: Any, place: str) -> Any:
        """Return the import path of a function, or digests of its code and the values it uses."""
        if isinstance(value, np.ndarray | np.generic):
            return _array(value)
        if isinstance(value, Source):
            shape = f"{tuple(value.shape)} {value.dtype}"
            return {"class": shape, "content": (exact_content if self._exact else content)(value)}
        if type(value) is partial:
            parts = {"func": value.func, "args": value.args, "keywords": value.keywords}
            return self.named("partial", parts, place)
        if isinstance(value, MethodType):
            parts = {"self": value.__self__, "function": value.__func__}
            return self.named(value.__func__.__qualname__, parts, place)
        if isinstance(value, set | frozenset):
            return sorted(str(self.encode(part, place)) for part in value)
        kind = f"{module_of(type(value))}:{type(value).__qualname__}"
        if isinstance(value, _CHANGING):
            return f"{kind} {getattr(value, '__name__', '')}".rstrip()
        if is_frozen(type(value)):
            own_class = {"own class": type(value)} if self._exact else {}
            return self.named(kind, fields_of(value) | own_class, place)
        if id(value) in self._visited:
            return self._visited[id(value)][1]
        if not self._exact and place.count(".") > 20:
            return kind
        outermost = not self._visited
        self._visited[id(value)] = value, kind  # for references to itself
        identity = self._identity(value, kind, place)
        text = digest(json.dumps(identity, sort_keys=True))
        self._visited[id(value)] = value, text
        if outermost:
            self._visited.clear()
        return identity if outermost else text

    def _identity(self, value: Any, kind: str, place: str) -> Any:
        """Return what identifies a function, a class or an object."""
        if isinstance(value, FunctionType):
            name = value.__qualname__
            local = "<lambda>" in name or "<locals>" in name
            if not local and (not self._exact or is_installed(value)):
                return f"{module_of(value)}:{name}"
            kinds = (object,) if self._exact else _CONSTANTS
            context = self.encode(_context(value, kinds), f"{place}.around")
            return digest(*_bytes_of(value.__code__), json.dumps(context, sort_keys=True))
        if isinstance(value, type):
            members = self._members(value) if self._exact else {}
            return self.named(f"{module_of(value)}:{value.__qualname__}", members, place)
        wrapped = getattr(value, "__wrapped__", None) if self._exact else None
        if wrapped is None:
            with suppress(ValueError):
                return import_path(value)
        try:
            state = _state(value)
        except Exception as error:  # locks can't be pickled, some layers have no configuration
            if self._exact and not hasattr(type(value), "__get__"):
                raise ArgumentError(
                    "`cache` must be able to tell whether what a function reads has changed; it "
                    f"can't of a {kind} (`{place}`). Pass numbers, text or arrays, or open it "
                    "inside of the function."
                ) from error
            state = function_of(value) or getattr(value, "__dict__", None)
        return self.named(kind, {"type": type(value), "state": state, "wrapped": wrapped}, place)

    def _members(self, kind: type) -> dict[str, Any]:
        """Return the constants and functions of a class that matter, also those of its bases."""
        members: dict[str, Any] = {}
        for base in reversed(kind.__mro__):
            if is_installed(base):
                continue
            for name, member in vars(base).items():
                function = function_of(member)
                if function is None:
                    if not name.startswith(("__", "_abc_")) and not isdatadescriptor(member):
                        members[f"class {name}"] = member
                elif not is_installed(function) and (
                    function.__code__.co_filename != "<string>"  # generated by dataclasses
                ):
                    members[f"{name}()"] = function
        return members


def _state(value: Any) -> Any:
    """Return what pickle would store of an object, which includes its class."""
    if hasattr(value, "python_function"):  # a tf.function
        return value.python_function
    if hasattr(value, "get_config") and hasattr(value, "_flatten_layers"):  # a layer of Keras
        layers: Any = value._flatten_layers()
        kinds: Any = [(type(layer), getattr(layer, "get_vocabulary", list)()) for layer in layers]
        return value.get_config(), value.get_weights(), kinds
    if hasattr(value, "detach"):  # a tensor of torch, whose pickle differs between processes
        return type(value), np.asarray(value.detach())
    reduce = copyreg.dispatch_table.get(type(value))
    reduced: Any = value.__reduce_ex__(2) if reduce is None else reduce(value)
    if isinstance(reduced, str):
        return reduced
    numbers = None  # of an array in a file, the pickle may be its path
    if hasattr(value, "__array__"):
        with suppress(Exception):
            numbers = np.asarray(value)
    return [*(list(part) if isinstance(part, Iterator) else part for part in reduced), numbers]


def _array(array: np.ndarray[Any, Any] | np.generic) -> str:
    try:
        kind, shape, text = encode_array(array)
        if isinstance(array, np.ma.MaskedArray):
            text += _array(np.ma.getmaskarray(array))
    except UnsupportedDtypeError:  # objects and dates
        kind, shape, text = str(array.dtype), list(array.shape), repr(array.tolist())
    return digest(kind, str(shape), text)


def _context(function: FunctionType, kinds: tuple[type, ...]) -> list[Any]:
    """Return the values that a function's code refers to: its closure, defaults and globals.

    Globals of these kinds count, because a notebook has in globals what a script has in closures;
    other globals and the environment, which differs between runs, count by name only.
    """
    cells = {}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        with suppress(ValueError):  # a variable not assigned yet
            cells[name] = cell.cell_contents
    unread = os.environ, sys.stdout, sys.stderr
    used = {
        name: value
        for name, value in globals_of(function)
        if isinstance(value, kinds) and not any(value is each for each in unread)
    }
    return [cells, function.__defaults__, function.__kwdefaults__, used]


def _bytes_of(outer: CodeType) -> Iterator[str | bytes]:
    """Yield the content of a function's code, without file name and line numbers."""
    for code in codes(outer):
        yield code.co_code
        yield repr((code.co_names, code.co_varnames, code.co_argcount, code.co_kwonlyargcount))
        for constant in code.co_consts:
            if isinstance(constant, frozenset):  # its order differs between processes
                yield repr(sorted(map(repr, constant)))
            elif not isinstance(constant, CodeType):
                yield repr(constant)
