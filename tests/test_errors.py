"""The exception tree: its shape, what it travels through, and what it says."""

from __future__ import annotations

import builtins
import inspect
import pickle
import re

import numpy as np
import pytest

import oocdata as ooc
from oocdata import errors

CLASSES = [getattr(errors, name) for name in errors.__all__]
SOURCE_ERRORS = [kind for kind in CLASSES if issubclass(kind, errors.SourceError)]


def drawn() -> dict[str, tuple[str, str | None]]:
    """Return the tree of the module docstring: name -> (parent, builtin)."""
    tree: dict[str, tuple[str, str | None]] = {}
    stack = ["OocdataError"]
    for line in (errors.__doc__ or "").splitlines():
        found = re.match(r"^    ((?:│   |    )*)[├└]── (\w+)(?: \((\w+)\))?", line)
        if found:
            depth = len(found[1]) // 4 + 1
            stack[depth:] = [found[2]]
            tree[found[2]] = (stack[depth - 1], found[3])
    return tree


def test_the_drawing_is_the_tree():
    tree = drawn()
    assert set(tree) | {"OocdataError"} == set(errors.__all__)
    for name, (parent, builtin) in tree.items():
        kind = getattr(errors, name)
        assert getattr(errors, parent) in kind.__bases__
        if builtin:
            assert issubclass(kind, getattr(builtins, builtin))


def test_every_public_exception_is_exported_and_documented():
    defined = {
        name
        for name, value in vars(errors).items()
        if inspect.isclass(value) and issubclass(value, Exception)
    }
    assert defined == set(errors.__all__)
    assert all(kind.__doc__ for kind in CLASSES)


@pytest.mark.parametrize("kind", SOURCE_ERRORS, ids=lambda kind: kind.__name__)
def test_a_source_error_says_where_and_survives_a_pickle(kind):
    error = kind("must hold; got less.", path="a.h5", key="/u", rows=range(3))
    assert str(error) == "must hold; got less. [file 'a.h5', dataset '/u', rows 0, 1, 2]"
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is kind
    assert str(copy) == str(error)
    assert (copy.path, copy.key, copy.rows) == ("a.h5", "/u", (0, 1, 2))


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_a_plain_message_is_shown_as_it_is(kind):
    # KeyError shows the repr of its argument, OSError may want an errno: neither may get through.
    assert str(kind("`n` must be 1; got 2.")) == "`n` must be 1; got 2."
    assert str(pickle.loads(pickle.dumps(kind("what 'it' is.")))) == "what 'it' is."


@pytest.mark.parametrize(
    ("path", "key", "rows", "said"),
    [
        (None, None, None, ""),
        ("a", None, None, "file 'a'"),
        (None, "/u", None, "dataset '/u'"),
        (None, None, [4], "row 4"),
        (None, None, [], "rows none"),
        ("a", None, range(8), "file 'a', rows 0, 1, 2, 3, 4, 5, 6, 7"),
        ("a", None, range(9), "file 'a', rows 0, 1, 2, 3, 4, 5, 6, 7, … (9 in all)"),
    ],
)
def test_place(path, key, rows, said):
    assert errors.place(path, key, rows) == said


def test_an_error_tells_which_arguments_it_is_about() -> None:
    with pytest.raises(errors.ArgumentError) as caught:
        ooc.open(np.zeros((3, 4)), axis=9)
    assert caught.value.arguments == ("axis",)
    with pytest.raises(errors.ArgumentError) as caught:
        ooc.open(np.zeros((3, 4)), dtype="f4")
    assert caught.value.arguments == ("dtype",)
