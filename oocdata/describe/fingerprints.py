"""Whether a loader is still the same: what a saved position belongs to, in a few lines.

A position (epoch, step) means the same batch only with the same data, selection, windows, batch
size, order and seed. Where the data lie, how many read them, and in how many shards, may change.
"""

from __future__ import annotations

import dis
import json
from collections.abc import Iterator, Mapping
from functools import partial
from logging import Logger
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from oocdata.datasets.dataset import fields_of
from oocdata.datasets.spec import leaves
from oocdata.describe.content import content, digest, exact_content
from oocdata.describe.encoding import Encoder, encode_array, import_path, is_frozen
from oocdata.engines.source import Source
from oocdata.errors import RestoreError, UnsupportedDtypeError

if TYPE_CHECKING:
    from oocdata.datasets.dataset import Dataset
    from oocdata.loader import Loader
    from oocdata.stream import Stream

__all__ = ["dataset_fingerprint", "differences", "fingerprint", "refuse_other"]

_MOST_TEXT = 2048
"""Characters; with what TensorFlow writes beside them, a checkpoint stays under 4 KiB."""

_SHORT = 13
"""Characters of a digest: what is no longer stands as it is."""

_NO_MATTER = ("shuffle", "reason", "workers", "num_shards", "index")
"""Of a loader: what changes no global batch."""


def fingerprint(loader: Loader | Stream, **more: str) -> str:
    """Return what must be the same for a position to mean the same batch, and `more` by name.

    It is JSON of at most 2048 characters: names and texts; the longest become digests, ``"#…"``.

    Examples
    --------
    >>> import oocdata as ooc
    >>> found = fingerprint(ooc.open(np.arange(10)).batches(4, shuffle=True, seed=7))
    >>> parts = json.loads(found)
    >>> parts["batch_size"], parts["seed"], parts["order"], parts["dataset.rows"]
    ('4', '7', 'shuffle', '0:10:1')
    """
    parts = {name: part for name, part in fields_of(loader).items() if name not in _NO_MATTER}
    dataset = parts.pop("dataset")
    found = {"elements": ", ".join(map(str, leaves(dataset.spec)))}
    found.update(_flat(_Digests().named("loader", {**parts, "dataset": dataset}, "loader"), ""))
    del found[""]
    return _shortened({**found, **more})


def dataset_fingerprint(dataset: Dataset, *, exact: bool = False) -> str:
    """Return what must be the same for positions to mean the same elements; see `fingerprint`.

    With `exact` it is another one wherever a number may have changed, in the data or by the code of
    a function: what was computed of them is then computed anew.
    """
    found = {"elements": ", ".join(map(str, leaves(dataset.spec)))}
    found.update(_flat(_Digests(exact=exact).encode(dataset, "dataset"), ""))
    found["kind"] = found.pop("")
    return _shortened(found)


def differences(saved: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """Say in which names two fingerprints differ; of what lies in one that does, nothing more.

    Examples
    --------
    >>> differences({"seed": "7", "rows": "#01"}, {"seed": "8", "rows": "#02"})
    ['`seed` was 7, and is 8', '`rows` differs']
    """
    found: list[str] = []
    other: list[str] = []
    for name in {**saved, **now}:
        if any(name.startswith(f"{whole}.") for whole in other):
            continue
        was, is_ = saved.get(name, "not there"), now.get(name, "not there")
        if was == is_ or _short(was) == _short(is_):
            continue
        hidden = was.startswith("#") and is_.startswith("#")
        other.append(name)
        found.append(f"`{name}` differs" if hidden else f"`{name}` was {was}, and is {is_}")
    return found


def refuse_other(saved: str, now: str, place: str = "") -> None:
    """Raise RestoreError if two fingerprints are not of one and the same.

    `place` is where the first was found, for the message.
    """
    if saved == now:
        return
    try:
        found = differences(json.loads(saved), json.loads(now))
    except (ValueError, TypeError):  # not what `fingerprint` returns
        found = ["it was saved by another version of oocdata"]
    if found:
        raise RestoreError(
            "a position must be restored onto the data and the loader that it was saved with; "
            f"{'; '.join(found)}{place}. Make the loader as it was then, or start anew."
        )


def _json(found: Mapping[str, str]) -> str:
    return json.dumps(found, separators=(",", ":"))


def _short(text: str) -> str:
    return text if len(text) <= _SHORT else digest(text)


def _shortened(found: Mapping[str, str]) -> str:
    text = _json(found)
    if len(text) <= _MOST_TEXT:
        return text
    short = {name: _short(value) for name, value in found.items()}
    rest: dict[str, str] = {}
    while len(_json(short)) > _MOST_TEXT - 32:
        name, value = short.popitem()
        rest[name] = value
    return _json({**short, "more": digest(_json(rest))} if rest else short)


def _flat(value: Any, name: str) -> Iterator[tuple[str, str]]:
    """Yield (name, text) of what is described: ``dataset.view.rows``."""
    if isinstance(value, dict) and ("kind" in value or "dict" in value):
        parts = dict(value.get("dict", value))
        yield name, str(parts.pop("kind", "dict"))
        for part in parts:
            yield from _flat(parts[part], f"{name}.{part}" if name else part)
    elif isinstance(value, dict):  # a range, a slice, a dtype
        (part,) = value.values()
        yield name, ":".join(map(str, part)) if isinstance(part, list) else str(part)
    elif isinstance(value, list) and any(isinstance(part, dict | list) for part in value):
        texts = [list(_flat(part, f"{name}.{at}")) for at, part in enumerate(value)]
        if all(len(each) == 1 for each in texts):  # ranges, mostly: of axes
            yield name, ", ".join(each[0][1] for each in texts)
        else:
            yield name, str(len(value))
            for each in texts:
                yield from each
    elif isinstance(value, list):
        yield name, ", ".join(map(str, value))
    else:
        yield name, str(value)


class _Digests(Encoder):
    """Writes digests of leaves. Nothing is refused: it need not be made again.

    With `exact`, functions that have names are known by their code too, and data by every number.
    """

    def __init__(self, *, exact: bool = False) -> None:
        super().__init__()
        self._exact = exact
        self._met: dict[int, tuple[Any, str]] = {}
        """What was met in the function that is told, by its id, and how it is told in another."""

    def _dict(self, value: dict[Any, Any], place: str) -> Any:
        return super()._dict({str(name): part for name, part in value.items()}, place)

    def leaf(self, value: Any, place: str) -> Any:
        """Return the import path of a function, or the digest of its code; and what it holds."""
        if isinstance(value, np.ndarray | np.generic):
            return _array(value)
        if isinstance(value, Source):
            shape = f"{tuple(value.shape)} {value.dtype}"
            return {"kind": shape, "content": (exact_content if self._exact else content)(value)}
        if type(value) is partial:
            parts = {"func": value.func, "args": list(value.args), **value.keywords}
            return self.named("partial", parts, place)
        if isinstance(value, MethodType):
            parts = {"self": value.__self__}
            parts |= {"function": value.__func__} if self._exact else {}
            return self.named(value.__func__.__qualname__, parts, place)
        if isinstance(value, dict):
            return self._dict(value, place)
        if isinstance(value, set | frozenset):
            return sorted(str(self.encode(part, place)) for part in value)
        kind = f"{type(value).__module__}:{type(value).__qualname__}"
        if is_frozen(type(value)):
            return self.named(kind, fields_of(value) | self._methods(type(value)), place)
        if isinstance(value, ModuleType | Logger):  # what they hold changes as a program runs
            return f"{kind}:{getattr(value, '__name__', None) or value.name}"
        if id(value) in self._met:
            return self._met[id(value)][1]
        if place.count(".") > 20:
            return kind
        outermost = not self._met
        self._met[id(value)] = value, kind  # also in itself
        found = self._held(value, kind, place)
        text = digest(json.dumps(found, sort_keys=True))
        self._met[id(value)] = value, text
        if outermost:
            self._met.clear()
        return found if outermost else text

    def _held(self, value: Any, kind: str, place: str) -> Any:
        """Return what tells a function, a class or an object from others."""
        if isinstance(value, FunctionType):
            name = value.__qualname__
            local = "<lambda>" in name or "<locals>" in name
            if not local and (not self._exact or _is_installed(value)):
                return f"{value.__module__}:{name}"
            around = self.encode(_around(value), f"{place}.around")
            return digest(*_bytes_of(value.__code__), json.dumps(around, sort_keys=True))
        try:
            return import_path(value)
        except ValueError:
            held = getattr(value, "__dict__", {}) | self._methods(type(value))
        if held:
            return self.named(kind, held, place)
        text = repr(value)  # of bytes, dates, paths
        return kind if " at 0x" in text else text

    def _methods(self, kind: type) -> dict[str, Any]:
        """Return the functions of a class whose code counts."""
        each = [item for base in reversed(kind.__mro__) for item in vars(base).items()]
        return {
            f"{name}()": function
            for name, function in each
            if self._exact
            if isinstance(function, FunctionType)
            and not _is_installed(function)
            and function.__code__.co_filename != "<string>"  # what makes dataclasses wrote it
        }


def _is_installed(function: FunctionType) -> bool:
    """Return whether a function is one of a library, which is known by its name."""
    from sysconfig import get_paths  # not for `import oocdata`

    paths = get_paths()
    libraries = tuple(paths[name] for name in ("stdlib", "purelib", "platlib"))
    return function.__code__.co_filename.startswith(libraries)


def _array(array: np.ndarray[Any, Any] | np.generic) -> str:
    try:
        kind, shape, text = encode_array(array)
    except UnsupportedDtypeError:  # objects, dates: by what they look like
        kind, shape, text = str(array.dtype), list(array.shape), repr(array)
    return digest(kind, str(shape), text)


def _around(function: FunctionType) -> list[Any]:
    """Return what a function takes from around its code: its closure, defaults and globals.

    Numbers and functions of the module count too: a notebook keeps there what a script keeps in
    closures. What else it finds there counts by its name alone.
    """
    closure = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    cells = {name: cell.cell_contents for name, cell in closure if _filled(cell)}
    known = function.__globals__
    names = {
        instruction.argval
        for code in _codes(function.__code__)
        for instruction in dis.get_instructions(code)
        if instruction.opname in ("LOAD_GLOBAL", "LOAD_NAME")
    }
    kinds = (bool, int, float, complex, str, bytes, tuple, np.ndarray, np.generic, FunctionType)
    used = {name: known[name] for name in sorted(names) if isinstance(known.get(name), kinds)}
    return [cells, function.__defaults__, function.__kwdefaults__, used]


def _filled(cell: Any) -> bool:
    try:
        cell.cell_contents  # noqa: B018  # the failure is the check
    except ValueError:  # a name that has no value yet
        return False
    return True


def _codes(code: CodeType) -> Iterator[CodeType]:
    """Yield the code of a function, and of those defined in it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)


def _bytes_of(function: CodeType) -> Iterator[str | bytes]:
    """Yield what a function does, without where it stands."""
    for code in _codes(function):
        yield code.co_code
        yield repr((code.co_names, code.co_varnames, code.co_argcount, code.co_kwonlyargcount))
        for constant in code.co_consts:
            if isinstance(constant, frozenset):  # in another order in each process
                yield repr(sorted(map(repr, constant)))
            elif not isinstance(constant, CodeType):
                yield repr(constant)
