"""Match names against keys with wildcards, in natural order; see `oocdata.formats.tree`."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from fnmatch import translate
from glob import has_magic
from itertools import takewhile
from typing import Any, Literal, TypeAlias

from oocdata.errors import ArgumentError
from oocdata.index import is_iterable

_FEWEST_MERGED = 4
"""Arrays of numbered groups are named by a pattern from this count on."""

_digits = re.compile(r"(\d+)").split

Key: TypeAlias = str | Sequence[str]
"""A dataset's name or a pattern, or a sequence of them."""

Axis: TypeAlias = int | str | Sequence[int | str] | None
"""The argument `axis` of `oocdata.open`."""

Missing: TypeAlias = Literal["error", "fill"]
"""The argument `missing` of `oocdata.open`."""


def is_pattern(key: str) -> bool:
    """Return whether a key has the wildcards of a glob: ``*``, ``?`` or ``[…]``."""
    return has_magic(key)


def natural_key(name: str) -> list[Any]:
    """Return a sort key for natural order, in which part 2 comes before part 10."""
    runs: list[Any] = _digits(name)  # alternating text and digits; 100,000 paths in a second
    runs[1::2] = map(int, runs[1::2])
    return runs


def checked_keys(key: Key) -> list[str]:
    """Return keys as a list; raise if one is no text, appears twice or has ``**``."""
    keys: list[Any] = [key] if isinstance(key, str) or not is_iterable(key) else list(key)
    if not keys or not all(isinstance(name, str) for name in keys):
        raise ArgumentError(
            f"`key` must be a dataset's name or pattern, or several of them; got {key!r}."
        )
    deep = next((name for name in keys if "**" in name), None)
    if deep is not None:
        raise ArgumentError(
            f"`key` must match each step of a name by its own pattern; got {deep!r}. Write * for "
            "each step."
        )
    (repeated, count) = Counter(name.strip("/") for name in keys).most_common(1)[0]
    if count > 1:
        raise ArgumentError(f"`key` must name each dataset once; got {repeated!r} {count} times.")
    return keys


def common_ending(keys: Sequence[str]) -> str | None:
    """Return the longest common ending of keys, in whole steps; None if they share none."""
    from_end = zip(*(key.strip("/").split("/")[::-1] for key in keys), strict=False)
    shared = [steps[0] for steps in takewhile(lambda steps: len(set(steps)) == 1, from_end)]
    return "/".join(shared[::-1]) or None


def children_by_group(names: Iterable[str]) -> dict[str, list[str]]:
    """Return the children of each group in a flat list of names."""
    tree: dict[str, dict[str, None]] = {}
    for name in names:
        group = ""
        for step in name.strip("/").split("/"):
            tree.setdefault(group, {})[step] = None
            group = f"{group}/{step}"
    return {group: list(below) for group, below in tree.items()}


def key_label(key: Key) -> str:
    """Return a short text for keys."""
    if isinstance(key, str):
        return key
    return key[0] + (f" and {len(key) - 1} more" if len(key) > 1 else "")


def expand_pattern(pattern: str, children: Callable[[str], Iterable[str]]) -> list[str]:
    """Return the names that match a pattern step by step, in natural order.

    `children` returns the names of a group's children; names have a slash before each step. Steps
    without wildcards are not looked up, so a name may lead nowhere.
    """
    matches = [""]
    for step in pattern.strip("/").split("/"):
        if is_pattern(step):
            match = re.compile(translate(step)).match
            matches = [
                f"{group}/{name}" for group in matches for name in children(group) if match(name)
            ]
        else:
            matches = [f"{group}/{step}" for group in matches]
    return sorted(matches, key=lambda name: (natural_key(name), name))


def numbered_groups(names: Sequence[str]) -> dict[str, list[str]]:
    """Return patterns for arrays of numbered groups, such as episodes, and what each matches."""
    tree, known = children_by_group(names), {f"/{name.strip('/')}" for name in names}
    groups: dict[str, list[str]] = {}
    for name in names:
        group, slash, last = name.rpartition("/")
        groups.setdefault(re.sub(r"\d+", "*", group) + slash + last, []).append(name)
    return {
        pattern: members
        for pattern, members in groups.items()
        if len(members) >= _FEWEST_MERGED
        and is_pattern(pattern)
        # The pattern matches no others.
        and len(known.intersection(expand_pattern(pattern, lambda group: tree.get(group, ()))))
        == len(members)
    }
