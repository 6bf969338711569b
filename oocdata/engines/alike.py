"""Check that arrays can be one array, and combine what describes them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from oocdata.engines.source import Annotations, Storage
from oocdata.errors import MismatchedPartsError, location_text


def check_same_shape(
    parts: Sequence[tuple[tuple[int, ...], np.dtype[Any], str | None, str | None]], axis: int
) -> None:
    """Raise if parts of these shapes and dtypes can't be concatenated.

    >>> f4 = np.dtype("f4")
    >>> check_same_shape([((5, 3), f4, "a.h5", "u"), ((2, 3), f4, "a.h5", "v")], 0)
    >>> check_same_shape([((5, 3), f4, "a.h5", "u"), ((2, 4), f4, "a.h5", "v")], 0)
    Traceback (most recent call last):
    ...
    oocdata.errors.MismatchedPartsError: parts must have one dtype, and one shape besides axis 0;
    they have (*, 3) float32 (1 part) and (*, 4) float32 (1 part, the first 'v'). Leave some out; or
    fill rows up to one shape with `pad`; or open them one by one. Then ooc.zip makes pairs (x, y),
    and ooc.concat one array of views of one shape and dtype (view[:, :8], view.astype('f4')). [file
    'a.h5', dataset 'v']
    """
    groups: dict[tuple[Any, ...], list[int]] = {}
    for number, (shape, dtype, _, _) in enumerate(parts):
        kind = dtype.kind if dtype.kind in "SU" else dtype  # text is as long as the longest
        others = shape[:axis] + shape[axis + 1 :] if axis < len(shape) else (len(shape),)
        groups.setdefault((others, kind), []).append(number)
    if len(groups) < 2:
        return
    counted = []
    for numbers in groups.values():
        shape, dtype, path, key = parts[numbers[0]]
        lengths = ", ".join("*" if at == axis else str(n) for at, n in enumerate(shape))
        count = f"{len(numbers)} part{'s' if len(numbers) > 1 else ''}"
        named = f", the first {(key or path)!r}" if numbers[0] and (key or path) else ""
        counted.append(f"({lengths}{',' if len(shape) == 1 else ''}) {dtype} ({count}{named})")
    _, _, path, key = parts[list(groups.values())[1][0]]
    raise MismatchedPartsError(
        f"parts must have one dtype, and one shape besides axis {axis}; they have "
        f"{', '.join(counted[:-1])} and {counted[-1]}. Leave some out; or fill rows up to one "
        "shape with `pad`; or open them one by one. Then ooc.zip makes pairs (x, y), and "
        "ooc.concat one array of views of one shape and dtype (view[:, :8], view.astype('f4')).",
        path=path,
        key=key,
    )


def check_same_meaning(storages: Iterable[Storage]) -> None:
    """Raise if equal numbers, or equal positions, stand for different things in two arrays.

    Compared are how numbers are packed, the unit of dates, units, and whether coordinates, such as
    the latitude, rise or fall. Nothing is known of arrays in memory without packing.
    ``valid_range`` and ``grid_mapping`` may differ: nothing is masked by the one, and the other is
    the name of an array. Values of coordinates may differ too: elements may be tiles of a map.
    """
    known = [one for one in storages if one.path is not None or one.packed or one.unit]
    firsts: dict[str, Storage] = {}
    for storage in known:
        found = _difference(known[0], storage)
        for name, here in storage.directions.items():
            first = firsts.setdefault(name, storage)
            there = first.directions[name]
            if here != there:
                found = (
                    f"have {name!r} in one direction; it {there} in '{first.path}', and {here} "
                    "here. Open each by itself, turn one, such as view[:, ::-1], and join them by "
                    "ooc.concat."
                )
        if found:
            raise MismatchedPartsError(f"parts must {found}", path=storage.path, key=storage.key)


def _difference(first: Storage, here: Storage) -> str:
    """Return in which way numbers of two arrays differ, and what to do; empty if they don't."""
    where = location_text(first.path, first.key) or "the first"
    packings = [f"{one.packed}{one.unit}" or "none packed" for one in (first, here)]
    if packings[0] != packings[1]:
        return (
            f"hold numbers that are packed alike, because they are delivered as stored; {where} "
            f"has {packings[0]}, and here is {packings[1]}. decode=True decodes each part by its "
            "own attributes; or open each by itself, bring its numbers to one unit by .map, and "
            "join them by ooc.concat."
        )
    if first.units != here.units and _are_other_units(first.units, here.units):
        return (
            f"have numbers in one unit; {where} has {first.units!r}, and here is {here.units!r}. "
            "Open each by itself, convert one by .map, and join them by ooc.concat."
        )
    return ""


_SCALE_OF_TEMPERATURE = re.compile(r"(?:°|deg|degrees?)?[ _]?(k|c|f)(?:elvin|elsius|ahrenheit)?")
_PREFIXES = ("", *"YZEPTGMkhdcmunpfazy", "da")
_FACTOR = re.compile(r"(/?)\s*([^\W\d_]+|%)(?:\*\*|\^)?([-+]?\d+)?")
_TIMES = {
    name: times[0]
    for times in (
        ("s", "sec", "second", "seconds"),
        ("min", "minute", "minutes"),
        ("h", "hr", "hrs", "hour", "hours"),
        ("d", "day", "days"),
    )
    for name in times
}


def _are_other_units(one: str, other: str) -> bool:
    """Return whether two units are certainly not two spellings of one.

    They are other scales of temperature, or differ in one factor: by its SI prefix, or because both
    are units of time.

    Examples
    --------
    >>> [_are_other_units(*each) for each in (("K", "degC"), ("mm", "m"), ("kg kg-1", "g kg-1"))]
    [True, True, True]
    >>> [_are_other_units(*each) for each in (("mm/day", "mm/h"), ("mm/day", "mm d-1"))]
    [True, False]
    >>> [_are_other_units(*each) for each in (("celsius", "degC"), ("m s**-1", "m s-1"))]
    [False, False]
    """
    one, other = one.strip(), other.strip()
    if one.lower() == other.lower():
        return False
    scales = [_SCALE_OF_TEMPERATURE.fullmatch(text.lower()) for text in (one, other)]
    if scales[0] and scales[1]:
        return scales[0][1] != scales[1][1]
    factors = [_factors(text) for text in (one, other)]
    differing = [[*(factors[at] - factors[1 - at]).elements()] for at in (0, 1)]
    if [len(each) for each in differing] != [1, 1] or differing[0][0][1] != differing[1][0][1]:
        return False
    names = [name for ((name, _),) in differing]
    if {*names} <= {*_TIMES.values()}:
        return True
    stems = [
        {name.removeprefix(prefix) for prefix in _PREFIXES if name.startswith(prefix)} - {""}
        for name in names
    ]
    return not stems[0].isdisjoint(stems[1])


def _factors(units: str) -> Counter[tuple[str, int]]:
    """Return the factors of a unit, with units of time by one name, and their powers."""
    return Counter(
        (_TIMES.get(name, name), int(power or 1) * (-1 if over else 1))
        for over, name, power in _FACTOR.findall(units)
    )


def check_same_columns(arrays: Iterable[Storage], axis: int) -> None:
    """Raise if arrays that are joined along an axis have other columns, or in another order."""
    difference = "" if axis == 1 else different_columns(arrays)
    if difference:
        raise MismatchedPartsError(f"parts must have the same columns in one order; {difference}")


def different_columns(arrays: Iterable[Storage]) -> str:
    """Return where columns have other names than those of the first array; empty if nowhere.

    Arrays without names match all others; if the first has none, no others are read.
    """
    named = [(array, array.columns) for array in arrays if array.columns is not None]
    expected = named[0][1]() if len(named) > 1 else None
    if expected is None:
        return ""
    for array, columns in named[1:]:
        names = columns()
        if names is None:
            continue
        both = slice(min(len(expected), len(names)))
        differing = np.flatnonzero(expected[both] != names[both])
        if len(differing):
            place, first = int(differing[0]), named[0][0]
            one, other = (
                text.decode() if isinstance(text, bytes) else text
                for text in (expected[place], names[place])
            )
            return (
                f"column {place} is {one!r} in '{first.path}' ({first.key}) and {other!r} in "
                f"'{array.path}' ({array.key}). Open each by itself, choose its columns in one "
                "order, such as view[:, order], and join them by ooc.concat; read the names by "
                "np.asarray(ooc.open(path, 'var/_index'))."
            )
    return ""


def joined_changes(
    storages: Sequence[Storage], changes: Mapping[str, Any] | None = None, **more: Any
) -> dict[str, Any]:
    """Return how joined arrays are opened again, and whether each is an episode.

    Datasets of several keys are. `changes` has other fields of `Storage`, and precedes; `more`
    are further arguments of `oocdata.open`.
    """
    arguments = [one.opened and {**one.opened, **more} for one in storages]
    opened = _combined_open_arguments(arguments)
    whole = (opened or {}).get("axis", 0) is None
    several_keys = not whole and isinstance((opened or {}).get("key"), list)
    episodes = bool(changes) or several_keys or any(one.episodes for one in storages)
    joined = {"opened": opened, "episodes": episodes, **(changes or {})}
    return {**joined, "opened": joined["opened"] and {**joined["opened"], **more}}


def _combined_open_arguments(
    arguments: Sequence[Mapping[str, Any] | None],
) -> Mapping[str, Any] | None:
    """Return the arguments that open parts as one array: a list of files, or of keys of one file.

    None if some part can't be opened again, or if they differ in other arguments too.
    """
    expanded: list[Mapping[str, Any]] = []
    for kwargs in arguments:
        if kwargs is None or not isinstance(kwargs.get("target"), str | list):
            return None
        targets = [kwargs["target"]] if isinstance(kwargs["target"], str) else kwargs["target"]
        expanded += [{**kwargs, "target": target} for target in targets]
    for name in ("target", "key"):
        others = ({n: v for n, v in kwargs.items() if n != name} for kwargs in expanded)
        first = next(others)
        if all(other == first for other in others):
            return {**expanded[0], name: [kwargs.get(name) for kwargs in expanded]}
    return None


def common_names(dimensions: list[tuple[str, ...]]) -> tuple[str, ...]:
    """Return the axis names that all parts share; empty for an axis whose names differ.

    Raises `MismatchedPartsError` if an axis of one part goes together with another axis of another.
    """
    different = list(dict.fromkeys(filter(any, dimensions)))
    if len(set(map(len, different))) != 1:  # none has names, or windows have more than rows
        return ()
    axes = [set(names) - {""} for names in zip(*different, strict=True)]
    for name in sorted(set().union(*axes)):
        if sum(name in axis for axis in axes) > max(names.count(name) for names in different):
            raise MismatchedPartsError(
                f"parts must have the axis {name!r} at one place; they have "
                f"{', '.join(map(str, different))}. Open them one by one, with the same `axis`, "
                "and transpose elements: view.transpose(1, 0)."
            )
    common_names = tuple(names.pop() if len(names) == 1 else "" for names in axes)
    return common_names if all(dimensions) and any(common_names) else ()


def common_annotations(annotations: Sequence[Annotations]) -> Annotations:
    """Return the attributes and fill value that arrays share; None for those that differ."""
    names = dict.fromkeys(name for each in annotations for name in each.attributes)
    fill_values = [each.fill_value for each in annotations]
    return Annotations(
        {name: _agreed([each.attributes.get(name) for each in annotations]) for name in names},
        None if fill_values[0] is None else _agreed(fill_values),
    )


def _agreed(values: list[Any]) -> Any:
    """Return the common value; None if the values differ."""
    return values[0] if all(_same(value, values[0]) for value in values) else None


def _same(value: Any, other: Any) -> bool:
    if isinstance(value, np.ndarray | np.generic) or isinstance(other, np.ndarray | np.generic):
        first, second = np.asarray(value), np.asarray(other)
        numbers = first.dtype.kind in "fc" and second.dtype.kind in "fc"
        return bool(np.array_equal(first, second, equal_nan=numbers))
    return bool(value == other or (value != value and other != other))
