"""Resolve keys with wildcards to datasets of a file, in natural order, and concatenate these."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fnmatch import translate
from glob import has_magic
from itertools import takewhile
from typing import Any, Literal, TypeAlias

from oocdata.engines.axes import axis_numbers
from oocdata.engines.mixed_shapes import join_parts
from oocdata.engines.source import Source
from oocdata.errors import ArgumentError, MissingKeyError
from oocdata.formats.dimensions import choose_key, quoted
from oocdata.index import is_iterable

__all__ = [
    "GROUP", "Axis", "Key", "Missing", "checked_keys", "children_by_group", "common_ending",
    "concatenate_datasets", "find_datasets", "is_pattern", "key_label", "matching_keys",
    "natural_key",
]  # fmt: skip

_digits = re.compile(r"(\d+)").split

Key: TypeAlias = str | Sequence[str]
"""A dataset's name or a pattern, or a sequence of them."""

Axis: TypeAlias = int | str | Sequence[int | str]
"""The argument `axis` of `oocdata.open`."""

Missing: TypeAlias = Literal["error", "fill"]
"""The argument `missing` of `oocdata.open`."""

Children: TypeAlias = Callable[[str], Iterable[str]]
"""Returns the names of a group's children; the group's name has a slash before each step."""

_MOST_TRIED = 50
"""Most groups whose children an error lists."""

GROUP = object()
"""Stands for a group; see `find_datasets`."""


def is_pattern(key: str) -> bool:
    """Return whether a key has the wildcards of a glob: ``*``, ``?`` or ``[…]``.

    Examples
    --------
    >>> is_pattern("data/demo_*/actions"), is_pattern("data/demo_0/actions")
    (True, False)
    """
    return has_magic(key)


def natural_key(name: str) -> list[Any]:
    """Return a sort key for natural order, in which part 2 comes before part 10.

    Examples
    --------
    >>> sorted(["demo_10", "demo_2", "demo_1"], key=natural_key)
    ['demo_1', 'demo_2', 'demo_10']
    """
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
    """Return the longest common ending of keys, in whole steps; None if they share none.

    Examples
    --------
    >>> common_ending(["/data/demo_0/obs/u", "/data/demo_1/obs/u"]), common_ending(["/a", "/b"])
    ('obs/u', None)
    """
    from_end = zip(*(key.strip("/").split("/")[::-1] for key in keys), strict=False)
    shared = [steps[0] for steps in takewhile(lambda steps: len(set(steps)) == 1, from_end)]
    return "/".join(shared[::-1]) or None


def children_by_group(names: Iterable[str]) -> dict[str, list[str]]:
    """Return the children of each group in a flat list of names.

    Examples
    --------
    >>> children_by_group(["a/x", "a/y", "b"])
    {'': ['a', 'b'], '/a': ['x', 'y']}
    """
    tree: dict[str, dict[str, None]] = {}
    for name in names:
        group = ""
        for step in name.strip("/").split("/"):
            tree.setdefault(group, {})[step] = None
            group = f"{group}/{step}"
    return {group: list(below) for group, below in tree.items()}


def matching_keys(key: Key, names: Sequence[str], path: str) -> list[str]:
    """Return the names of a file's datasets that `key` matches or lists, in the order of its keys.

    Raises `MissingKeyError` with the nearest names for a key without a dataset.

    Examples
    --------
    >>> matching_keys(["b", "run_*"], ["run_10", "run_2", "b", "c"], "a.npz")
    ['b', 'run_2', 'run_10']
    """
    known = {f"/{name.strip('/')}": name for name in names}
    tree = children_by_group(names)
    matches = find_datasets(
        key,
        lambda group: tree.get(group, []),
        lambda name: known.get(name) or (GROUP if name in tree else None),
        path,
    )
    return [
        dataset or known.get(name) or choose_key(names, name[1:], path) for name, dataset in matches
    ]


def find_datasets(
    key: Key, children: Children, look: Callable[[str], Any], path: str
) -> Iterator[tuple[str, Any]]:
    """Yield pairs of a dataset's name and its object for all keys, each name once.

    `look` returns the object at a name: None if there is nothing, `GROUP` for a group, anything
    else for a dataset. For a key that is a plain name, the pair's object is None, and whether the
    dataset exists is not checked. A key with wildcards is taken as a plain name if `look` returns
    a true object for it. A pattern without a matching dataset is a `MissingKeyError`.
    """
    seen: set[str] = set()
    for pattern in checked_keys(key):
        exact = f"/{pattern.strip('/')}"
        if not is_pattern(pattern) or look(exact):
            seen.add(exact)
            yield exact, None
            continue
        any_dataset, groups = False, []
        for name in expand_pattern(pattern, children):
            found = look(name)
            if found is GROUP:
                groups.append(name)
            elif found is not None:
                any_dataset = True
                if name not in seen:
                    yield name, found
                seen.add(name)
        if not any_dataset:
            raise no_match_error(pattern, children, path, groups)


def key_label(key: Key) -> str:
    """Return a short text for keys.

    Examples
    --------
    >>> key_label("run_*"), key_label(["a", "b", "c"])
    ('run_*', 'a and 2 more')
    """
    if isinstance(key, str):
        return key
    return key[0] + (f" and {len(key) - 1} more" if len(key) > 1 else "")


def expand_pattern(pattern: str, children: Children) -> list[str]:
    """Return the names that match a pattern step by step, in natural order.

    Steps without wildcards are not looked up, so a name may lead nowhere.

    Examples
    --------
    >>> tree = {"": ["data", "mask"], "/data": ["demo_10", "demo_2", "total"]}
    >>> expand_pattern("data/demo_*/actions", lambda group: tree.get(group, []))
    ['/data/demo_2/actions', '/data/demo_10/actions']
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


def no_match_error(
    pattern: str, children: Children, path: str, groups: Sequence[str]
) -> MissingKeyError:
    """Return the error for a pattern that matches groups only, or nothing.

    Its message lists the nearest names.
    """
    if groups:
        below = [f"{pattern.rstrip('/')}/{name}" for name in sorted(children(groups[0]))]
        return MissingKeyError(
            f"`key` must match datasets; {pattern!r} matches {len(groups)} groups, the first "
            f"{groups[0]!r}. Name what lies in them: {quoted(below)}.",
            path=path,
        )
    steps = pattern.strip("/").split("/")
    near: list[str] = []
    while steps and not near:
        steps.pop()
        reached = expand_pattern("/".join(steps), children) if steps else [""]
        tried = reached[:_MOST_TRIED]
        near = [f"{group}/{name}" for group in tried for name in sorted(children(group))]
    return MissingKeyError(
        f"`key` must match datasets; {pattern!r} matches none. Nearby: {quoted(near)}.",
        path=path,
    )


def concatenate_datasets(
    sources: Sequence[Source],
    axis: int | str,
    key: Key,
    opened: Mapping[str, Any],
    pad: float | None = None,
) -> Source:
    """Concatenate datasets of one file, found by a key, along an axis; each is an episode.

    `opened` has the arguments of `oocdata.open`, apart from the key, that open the datasets again.
    `pad` is that of `oocdata.engines.mixed_shapes.join_parts`.
    """
    first = sources[0]
    (along,) = axis_numbers(axis, len(first.shape), first.storage())
    reopen = {**opened, "key": key if isinstance(key, str) else list(key)}
    changes = {
        "path": first.storage().path,
        "key": key_label(key),
        "opened": reopen,
        "episodes": True,
    }
    return join_parts(sources, along, pad, changes)
