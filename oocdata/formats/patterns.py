"""Keys with wildcards: which datasets of a file they match, in natural order, as one array."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fnmatch import translate
from glob import has_magic
from itertools import takewhile
from typing import Any, Literal, TypeAlias

from oocdata.engines.axes import axis_numbers
from oocdata.engines.source import Source
from oocdata.engines.unlike import joined
from oocdata.errors import ArgumentError, MissingKeyError
from oocdata.formats.dimensions import choose_key, listed
from oocdata.index import is_several

__all__ = [
    "GROUP", "Axis", "Key", "Missing", "datasets", "found_by", "is_pattern", "keys_of",
    "matches_of", "natural", "said", "shared_steps", "tree_of",
]  # fmt: skip

_digits = re.compile(r"(\d+)").split

Key: TypeAlias = str | Sequence[str]
"""The name of a dataset, a pattern, or several of them."""

Axis: TypeAlias = int | str | Sequence[int | str]
Missing: TypeAlias = Literal["error", "fill"]
"""Arguments of `oocdata.open`."""

Children: TypeAlias = Callable[[str], Iterable[str]]
"""Returns the names of what lies right below a group, given with a slash before each step."""

_MOST_TRIED = 50

GROUP = object()
"""What lies at the name of a group; see `found_by`."""


def is_pattern(key: str) -> bool:
    """Return whether a key has wildcards: ``*``, ``?`` or ``[…]``, as in a glob.

    Examples
    --------
    >>> is_pattern("data/demo_*/actions"), is_pattern("data/demo_0/actions")
    (True, False)
    """
    return has_magic(key)


def natural(name: str) -> list[Any]:
    """Return a sort key by which part 2 comes before part 10.

    Examples
    --------
    >>> sorted(["demo_10", "demo_2", "demo_1"], key=natural)
    ['demo_1', 'demo_2', 'demo_10']
    """
    runs: list[Any] = _digits(name)  # text and digits in turn: 100,000 paths in a second
    runs[1::2] = map(int, runs[1::2])
    return runs


def keys_of(key: Key) -> list[str]:
    """Return several keys as a list, checked: names, none twice, and none with ``**``."""
    keys: list[Any] = [key] if isinstance(key, str) or not is_several(key) else list(key)
    if not keys or not all(isinstance(one, str) for one in keys):
        raise ArgumentError(
            f"`key` must be a dataset's name or pattern, or several of them; got {key!r}."
        )
    deep = next((one for one in keys if "**" in one), None)
    if deep is not None:
        raise ArgumentError(
            f"`key` must match each step of a name by its own pattern; got {deep!r}. Write * for "
            "each step."
        )
    (most, count) = Counter(one.strip("/") for one in keys).most_common(1)[0]
    if count > 1:
        raise ArgumentError(f"`key` must name each dataset once; got {most!r} {count} times.")
    return keys


def shared_steps(keys: Sequence[str]) -> str | None:
    """Return the last steps that all keys share; None where there are none.

    Examples
    --------
    >>> shared_steps(["/data/demo_0/obs/u", "/data/demo_1/obs/u"]), shared_steps(["/a", "/b"])
    ('obs/u', None)
    """
    ways = zip(*(key.strip("/").split("/")[::-1] for key in keys), strict=False)
    shared = [steps[0] for steps in takewhile(lambda steps: len(set(steps)) == 1, ways)]
    return "/".join(shared[::-1]) or None


def tree_of(names: Iterable[str]) -> dict[str, list[str]]:
    """Return what lies right below each group of a flat list of names.

    Examples
    --------
    >>> tree_of(["a/x", "a/y", "b"])
    {'': ['a', 'b'], '/a': ['x', 'y']}
    """
    tree: dict[str, dict[str, None]] = {}
    for name in names:
        group = ""
        for step in name.strip("/").split("/"):
            tree.setdefault(group, {})[step] = None
            group = f"{group}/{step}"
    return {group: list(below) for group, below in tree.items()}


def matches_of(key: Key, names: Sequence[str], path: str) -> list[str]:
    """Return which of a file's datasets a pattern matches, or several keys name, in their order.

    The error of a key that is none of the names, or matches none, says what comes near.

    Examples
    --------
    >>> matches_of(["b", "run_*"], ["run_10", "run_2", "b", "c"], "a.npz")
    ['b', 'run_2', 'run_10']
    """
    known = {f"/{name.strip('/')}": name for name in names}
    tree = tree_of(names)
    each = found_by(
        key,
        lambda group: tree.get(group, []),
        lambda name: known.get(name) or (GROUP if name in tree else None),
        path,
    )
    return [found or known.get(name) or choose_key(names, name[1:], path) for name, found in each]


def found_by(
    key: Key, children: Children, look: Callable[[str], Any], path: str
) -> Iterator[tuple[str, Any]]:
    """Yield the names of datasets that a pattern matches, or several keys name, each once.

    `look` returns what lies at a name: None for nothing, `GROUP` for a group. That of a dataset is
    yielded with its name; None with one that a key names, whatever lies there. A pattern that
    matches no dataset is an error. A key that looks like a pattern is a name where what lies there
    is true.
    """
    seen: set[str] = set()
    for one in keys_of(key):
        exact = f"/{one.strip('/')}"
        if not is_pattern(one) or look(exact):
            seen.add(exact)
            yield exact, None
            continue
        none, groups = True, []
        for name in matching(one, children):
            found = look(name)
            if found is GROUP:
                groups.append(name)
            elif found is not None:
                none = False
                if name not in seen:
                    yield name, found
                seen.add(name)
        if none:
            raise unmatched(one, children, path, groups)


def said(key: Key) -> str:
    """Return keys in a few words.

    Examples
    --------
    >>> said("run_*"), said(["a", "b", "c"])
    ('run_*', 'a and 2 more')
    """
    if isinstance(key, str):
        return key
    return key[0] + (f" and {len(key) - 1} more" if len(key) > 1 else "")


def matching(pattern: str, children: Children) -> list[str]:
    """Return what may match a pattern, in natural order; each step of it is one of the names.

    Where the last steps have no wildcards, what they lead to need not be there.

    Examples
    --------
    >>> tree = {"": ["data", "mask"], "/data": ["demo_10", "demo_2", "total"]}
    >>> matching("data/demo_*/actions", lambda group: tree.get(group, []))
    ['/data/demo_2/actions', '/data/demo_10/actions']
    """
    found = [""]
    for step in pattern.strip("/").split("/"):
        if is_pattern(step):
            match = re.compile(translate(step)).match
            found = [
                f"{group}/{name}" for group in found for name in children(group) if match(name)
            ]
        else:
            found = [f"{group}/{step}" for group in found]
    return sorted(found, key=lambda name: (natural(name), name))


def unmatched(
    pattern: str, children: Children, path: str, groups: Sequence[str]
) -> MissingKeyError:
    """Return the error of a pattern that matches no dataset, only groups or nothing.

    It says what is there instead.
    """
    if groups:
        below = [f"{pattern.rstrip('/')}/{name}" for name in sorted(children(groups[0]))]
        return MissingKeyError(
            f"`key` must match datasets; {pattern!r} matches {len(groups)} groups, the first "
            f"{groups[0]!r}. Name what lies in them: {listed(below)}.",
            path=path,
        )
    found = [""]
    for step in pattern.strip("/").split("/"):
        match = re.compile(translate(step)).match
        some = found[:_MOST_TRIED]
        further = [f"{group}/{name}" for group in some for name in children(group) if match(name)]
        if not further:
            break
        found = sorted(further, key=natural)
    near = [f"{one}/{name}" for one in found[:_MOST_TRIED] for name in sorted(children(one))]
    return MissingKeyError(
        f"`key` must match datasets; {pattern!r} matches none. Nearby: {listed(near)}.",
        path=path,
    )


def datasets(
    sources: Sequence[Source],
    axis: int | str,
    key: Key,
    opened: Mapping[str, Any],
    pad: float | None = None,
) -> Source:
    """Return datasets of one file, found by a key, end to end along an axis; each is an episode.

    `opened` are arguments of `oocdata.open` that open them again, besides the key; `pad` is as
    `oocdata.engines.unlike.joined` takes it.
    """
    first = sources[0]
    (along,) = axis_numbers(axis, len(first.shape), first.storage())
    again = {**opened, "key": key if isinstance(key, str) else list(key)}
    changes = {"path": first.storage().path, "key": said(key), "opened": again, "episodes": True}
    return joined(sources, along, pad, changes)
