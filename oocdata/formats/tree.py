"""Define `Tree`, a file with named arrays: HDF5, Zarr or ``.npz``.

What a key means (a name, a pattern, a list, or none where one array is meant), and the names that
an error suggests, are decided here for all formats.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any, Self

import numpy as np

from oocdata.engines.axes import axis_numbers
from oocdata.engines.dtypes import is_small_float
from oocdata.engines.mixed_shapes import join_parts
from oocdata.engines.source import Source
from oocdata.errors import (
    MissingKeyError,
    SeveralDatasetsError,
    SourceError,
    UnsupportedDtypeError,
    error_location,
)
from oocdata.formats.anndata import Group, open_group
from oocdata.formats.dimensions import BOUNDS, OTHERS, as_text, data_variables, is_time
from oocdata.formats.patterns import (
    Key,
    checked_keys,
    children_by_group,
    expand_pattern,
    is_pattern,
    key_label,
    numbered_groups,
)
from oocdata.threads import cached_property

_NUMBERS = "biufc"


@dataclass(frozen=True, slots=True)
class Array:
    """The metadata of an array."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    dimensions: tuple[str, ...] = ()
    """Names of the axes; empty if they have none."""
    attributes: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_numeric(self) -> bool:
        """Whether it has axes and holds numbers."""
        is_number = self.dtype.kind in _NUMBERS or is_small_float(self.dtype)
        return bool(self.shape) and is_number

    @property
    def has_rows(self) -> bool:
        """Whether it has axes and is no text: numbers, fields, or numbers of varying length."""
        metadata: Mapping[str, Any] = self.dtype.metadata or {}
        varying = metadata.get("vlen", str) not in (str, bytes)
        return self.is_numeric or bool(self.shape and (self.dtype.names or varying))

    @property
    def row_bytes(self) -> int:
        """Bytes of one row along the first axis."""
        return prod(self.shape[1:]) * self.dtype.itemsize


def absolute_name(name: str) -> str:
    """Return a name with a slash before each step; empty for the root."""
    return f"/{stripped}" if (stripped := name.strip("/")) else ""


def quoted(names: Sequence[str]) -> str:
    """Return the first twenty names as text for a message; numbered groups are one pattern."""
    groups = numbered_groups(names)
    patterns = {name: pattern for pattern, members in groups.items() for name in members}
    names = list(dict.fromkeys(patterns.get(name, name) for name in names))
    return ", ".join(map(repr, names[:20])) + (", …" if len(names) > 20 else "") or "nothing"


def _is_array(found: Any) -> bool:
    """Return whether an object of `Tree.look` is an array, or a group that is one."""
    return found.is_array if isinstance(found, Group) else found is not None


class Tree:
    """The names in a file, and the arrays at them; a context manager, which opens the file.

    Names are separated by slashes; one at the beginning or the end makes no difference. `options`
    are arguments of `oocdata.open`. A format defines `names`, `array` and `open_array`, and
    overrides the rest where it knows better.
    """

    root = ""
    """What the keys of arrays begin with."""

    def __init__(self, path: str, **options: Any) -> None:
        self.path, self._opened = path, ExitStack()
        self.options = {name: value for name, value in options.items() if value}

    def __enter__(self) -> Self:
        self._opened.enter_context(error_location(self.path))
        return self

    def __exit__(self, *error: Any) -> None:
        """Close the file, and all that was opened with it."""
        self._opened.__exit__(*error)

    def names(self) -> list[str]:
        """Return the name of every array; ``[""]`` for a file that is a single one."""
        raise NotImplementedError

    def array(self, name: str) -> Array | None:
        """Return the metadata of an array; None if there is none, or a group that is one."""
        raise NotImplementedError

    def open_array(self, name: str, axis: int | str) -> Source:
        """Open the array at a name that `look` finds; reads metadata only."""
        raise NotImplementedError

    def arguments(self, key: Key | None) -> dict[str, Any]:
        """Return the arguments of `oocdata.open` that open what a key means again."""
        keys = (key or None) if isinstance(key, str | None) else list(key)
        return {"target": self.path, "key": keys, **self.options}

    @cached_property
    def _known(self) -> dict[str, str]:
        return {absolute_name(name): name for name in self.names()}

    @cached_property
    def _children(self) -> dict[str, list[str]]:
        return children_by_group(self._known)

    def below(self, group: str) -> list[str]:
        """Return the names of a group's children; none if there is no such group."""
        return self._children.get(absolute_name(group), [])

    def look(self, name: str) -> Any:
        """Return a `Group`, None if there is nothing, or else the format's object of an array.

        True stands for an array that can't be inspected, because it is in another file.
        """
        name = absolute_name(name)
        return self._known.get(name) or (Group({}) if name in self._children else None)

    def is_group(self, name: str) -> bool:
        """Return whether there is a group at a name, also one that is one array."""
        return isinstance(self.look(name), Group)

    def identity(self, name: str) -> object:
        """Return a value that is equal for all names of one array."""
        return name

    def attributes(self, name: str) -> Mapping[str, Any]:
        """Return the attributes of a group or an array; empty if there is neither."""
        found = self.look(name)
        if isinstance(found, Group):
            return found.attributes
        array = None if found is None else self.array(name)
        return {} if array is None else array.attributes

    def units_of_bounds(
        self, key: str, shape: tuple[int, ...], dimensions: tuple[str, ...]
    ) -> dict[str, Any]:
        """Return the units and the calendar that bounds of times have from their coordinate.

        Empty for other arrays. Sources: CF conventions, 7.1, "Cell Boundaries", and 7.4,
        "Climatological Statistics". Looked at are only coordinates named as an axis, or as the
        bounds up to the last underscore (``valid_time_bnds``): groups may have 10,000 arrays.
        """
        group, _, name = absolute_name(key).rpartition("/")
        others = (*dimensions[:-1], name.rpartition("_")[0])
        for other in others if shape[-1:] == (2,) else ():
            with suppress(SourceError):  # an array that can't be read
                found = self.attributes(f"{group}/{other}") if other else {}
                times = {each: found[each] for each in ("units", "calendar") if each in found}
                if name in {as_text(found.get(each)) for each in BOUNDS} and is_time(times):
                    return times
        return {}

    def open(self, key: str | None, axis: int | str = 0) -> Source:
        """Open the array at a name, or the only one; a name without one is a `MissingKeyError`."""
        name = self.only_name() if key is None else key
        found = self.look(name)
        if not _is_array(found):
            raise self.missing(name)
        if isinstance(found, Group):
            return open_group(self, self.root + name.strip("/"), found.attributes, axis)
        return self.open_array(name, axis)

    def only_name(self) -> str:
        """Return the name of the only array that can be meant without a key.

        Text, single numbers and further names of an array are not meant, coordinates only if there
        is nothing else. If there is not exactly one, the error lists them.
        """
        names, distinct = self.names(), dict[object, str]()
        for name in names:
            distinct.setdefault(self.identity(name), name)
        arrays: dict[str, Array | None] = {}
        for name in distinct.values() if len(names) > 1 else ():
            try:
                array = self.array(name)
            except UnsupportedDtypeError:
                continue
            except SourceError:  # opening the array reports the error
                array = None
            if array is not None:  # without its other attributes, which keep an array open
                named = {
                    each: array.attributes[each] for each in OTHERS if each in array.attributes
                }
                array = replace(array, attributes=named)
            if array is None or array.has_rows:
                arrays[name] = array
        names = data_variables(arrays) or list(distinct.values())
        if not names:
            raise MissingKeyError("the file must hold a dataset; it holds none.")
        if len(names) > 1:
            raise SeveralDatasetsError(
                f"`key` must be given, because the file holds several datasets: {quoted(names)}."
            )
        return names[0]

    def is_name(self, key: str) -> bool:
        """Return whether a key is a name, which may look like a pattern."""
        return not is_pattern(key) or _is_array(self.look(key))

    def matches(self, key: Key) -> Iterator[tuple[str, Any]]:
        """Yield name and object (see `look`) of each array that names and patterns mean.

        Those of a pattern are in natural order, each once. A name or pattern that means no array is
        a `MissingKeyError`.
        """
        seen: set[object] = set()
        for pattern in checked_keys(key):
            exact, groups, found_any = absolute_name(pattern), [], False
            is_name = self.is_name(pattern)
            for name in [exact] if is_name else expand_pattern(pattern, self.below):
                found = self.look(name)
                if _is_array(found):
                    found_any = True
                    identity = self.identity(name)
                    if is_name or identity not in seen:
                        yield name, found
                    seen.add(identity)
                elif found is not None:
                    groups.append(name)
            if not found_any:
                raise self.missing(exact) if is_name else self._no_match(pattern, groups)

    def join(self, key: Key, axis: int | str) -> Source:
        """Open several arrays as one, concatenated along the first of `axis`."""
        sources = [self.open(name, axis) for name, _ in self.matches(key)]
        return self.concatenate(sources, key, axis)

    def concatenate(
        self, sources: Sequence[Source], key: Key, axis: int | str | None, pad: float | None = None
    ) -> Source:
        """Concatenate the arrays that a key means; each is an episode, or one row (axis None)."""
        opened = {**(sources[0].storage().opened or {}), **self.arguments(key)}
        changes = {
            "path": self.path, "key": key_label(key), "opened": opened,
            "episodes": axis is not None,
        }  # fmt: skip
        (along,) = axis_numbers(axis, len(sources[0].shape), sources[0].storage())
        return join_parts(sources, along, pad, changes)

    def missing(self, name: str, why: str = "") -> MissingKeyError:
        """Return the error for a name without an array, which lists the names that there are.

        `why` continues the sentence after the name.
        """
        names = self.names()
        if names == [""]:
            return MissingKeyError(
                f"`key` must be left out, because the path is an array itself; got {name!r}."
            )
        if self.is_group(name):
            inside = absolute_name(name) + "/"
            names = [one for one in names if absolute_name(one).startswith(inside)]
            return MissingKeyError(
                f"`key` must name a dataset; {name!r} is a group, which holds: {quoted(names)}."
            )
        return MissingKeyError(
            f"`key` must name a dataset in the file; got {name!r}{why}. It holds: {quoted(names)}."
        )

    def _no_match(self, pattern: str, groups: Sequence[str]) -> MissingKeyError:
        start, names = f"{pattern.rstrip('/')}/", self.below(groups[0]) if groups else []
        holds = quoted([start + name for name in sorted(names)] or self.names())
        return MissingKeyError(
            f"`key` must match datasets; {pattern!r} matches {len(groups)} groups, and no dataset. "
            f"The file holds: {holds}."
        )
