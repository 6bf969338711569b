"""Test the exceptions: their tree, pickling, and messages."""

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


def test_arguments_in_a_message():
    message = "`rows` must be left out with `count`; got 3. Try fill=True, or `.map`."
    assert errors.ArgumentError(message).arguments == ("rows", "count", "fill")


def test_a_block_adds_the_location_and_the_package():
    with (
        pytest.raises(errors.SourceError, match=r"not\. \[file 'a\.h5', dataset '/u'\]"),
        errors.error_location("a.h5", "/u"),
    ):
        raise errors.SourceError("rows must be there; some are not.")
    with (
        pytest.raises(errors.MissingDependencyError, match="Install it: pip install tensorflow"),
        errors.needed("`to_tf` needs TensorFlow", "tensorflow"),
    ):
        import no_such_module  # noqa: F401


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
    ("path", "key", "rows", "message"),
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
def test_location_text(path, key, rows, message):
    assert errors.location_text(path, key, rows) == message


def test_an_error_tells_which_arguments_it_is_about() -> None:
    with pytest.raises(errors.ArgumentError) as caught:
        ooc.open(np.zeros((3, 4)), axis=9)
    assert caught.value.arguments == ("axis",)
    with pytest.raises(errors.ArgumentError) as caught:
        ooc.open(np.zeros((3, 4)), dtype="f4")
    assert caught.value.arguments == ("dtype",)


IDS = np.arange(12)

NUMBER = np.array(3.0)
"""An array that there is no going through, though Python takes it for one."""

UNEQUAL = [[1, 2], [3]]
"""Rows of which NumPy makes no array."""


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda v: v.split(0.5, 0.5, by=UNEQUAL), "`by` must be an array"),
        (lambda v: v.folds(2, stratify=UNEQUAL), "`stratify` must be an array"),
        (lambda v: v.split_at(3, coordinate=UNEQUAL), "`coordinate` must be an array"),
        (lambda v: v.windows(2)["x"], "int array or a bool mask; got 'x'. Only a View of records"),
        (lambda v: ooc.zip({"x": v})["x"], "got 'x'. Only a View of records"),
        (lambda v: v["x"], "got 'x'. Only a View of records has fields"),
        (lambda v: v.filter(UNEQUAL), "`mask` must be an array"),
        (lambda v: v.batches(2, shuffle=True, weights=UNEQUAL), "`weights` must be an array"),
        (lambda v: ooc.balanced(UNEQUAL), "`labels` must be an array"),
        (lambda v: ooc.stack([v, UNEQUAL]), "`values` must be an array"),
        (lambda v: ooc.ragged(np.arange(6), lengths=UNEQUAL), "`lengths` must be an array"),
        (lambda v: ooc.Interleave(UNEQUAL), "`lengths` must be an array"),
        (lambda v: ooc.episodes(done=UNEQUAL), "have one length; got 2, 1"),
        (lambda v: ooc.episodes(time=UNEQUAL, step=1), "`time` must be an array"),
        (lambda v: ooc.stack(v), "must get Views in a list"),
        (lambda v: ooc.stack(3), "must get Views in a list"),
        (lambda v: ooc.stack(NUMBER), "must get Views in a list"),
        (lambda v: ooc.concatenate(NUMBER), "must get Views in a list"),
        (lambda v: ooc.mix(NUMBER), "must be a dict of datasets and weights"),
        (lambda v: v.named(NUMBER), "names must be text"),
        (lambda v: ooc.open("a.h5", NUMBER), "`key` must be a dataset's name or pattern"),
        (lambda v: ooc.mix(v), "must be a dict of datasets and weights"),
        (lambda v: ooc.mix(3), "must be a dict of datasets and weights"),
        (lambda v: ooc.mix({v: np.True_}), "weights must be positive numbers"),
        (lambda v: ooc.episodes(time=["a", "b"], step=1), "`time` must have one number"),
        (lambda v: ooc.episodes(done=["a", "b"]), "`done` must have one number"),
        (lambda v: v.split(0.5, 0.5, axis=(0, 1)), "`axis` must be one of the sample axes"),
        (lambda v: v.folds(2**40), "`k` must be at most the 12 elements"),
        (lambda v: v.transpose((1, 0)), "one by one: transpose(1, 0); got ((1, 0),)"),
        (lambda v: v.transpose("x", "y"), "`axes` must be the 2 axes of an element"),
        (lambda v: v.astype("2000-01-01"), "`dtype` must be a NumPy dtype"),
        (lambda v: v.named(3), "names must be text"),
        (lambda v: v.map(np.sqrt, batched=[]), "`batched` must be True or False"),
        (lambda v: v.map(np.sqrt, rng="x"), "`rng` must be True or False"),
        (lambda v: v.batches(2, shuffle=np.arange(3)), "`shuffle` must be False, True"),
        (lambda v: v.batches(2, drop_remainder=np.arange(3)), "`drop_remainder` must be True or"),
        (lambda v: v.batches(2, shuffle=v.batches(2)), "`shuffle` must be False, True"),
        (lambda v: ooc.open([CUBE, CUBE], axis=[[1], [2]]), "numbers or names of axes; got [[1]"),
        (lambda v: ooc.stats(v, progress="no"), "`progress` must be True or False; got 'no'"),
        (lambda v: ooc.bench(v, to_tf="no"), "`to_tf` must be True or False; got 'no'"),
        (lambda v: ooc.check(v, progress="no"), "`progress` must be True or False; got 'no'"),
        (lambda v: v.batches(2).profile(to_tf="no"), "`to_tf` must be True or False; got 'no'"),
        (lambda v: v.map(np.sqrt, spec=ooc.ArraySpec("ab", "f4")), "`shape` must be lengths"),
        (lambda v: ooc.ArraySpec(UNEQUAL, "f4"), "`shape` must be an array"),
        (lambda v: ooc.Pictures(channels=UNEQUAL), "`channels` must be 1 (grey)"),
        (lambda v: ooc.join(v, v, on=[IDS, IDS], how=np.arange(0)), "`how` must be 'exact'"),
    ],
)
def test_wrong_calls_say_what_is_wrong(call, message):
    view = ooc.open(np.zeros((4, 3, 2, 5)), axis=(0, 1))
    with pytest.raises(errors.ArgumentError, match=re.escape(message)):
        call(view)


CUBE = np.zeros((2, 3, 4))
VIEW = ooc.open(np.arange(20.0).reshape(10, 2))
ROWS = ooc.ragged(np.arange(20), lengths=[3, 0, 5, 2, 10])
NUMBERS = np.arange(10)
LOADER = VIEW.batches(2)
CALLS = {
    "folder": lambda value: VIEW.cache(value),
    "path": lambda value: ooc.save_split(value, VIEW, VIEW.split(0.5, 0.5)),
    "path to load": lambda value: ooc.load_split(value, VIEW),
    "folder of Resume": lambda value: ooc.Resume(value, LOADER),
    "cache": lambda value: ooc.open("a.npy", cache=value),
    "missing": lambda value: ooc.open("a.npy", missing=value),
    "format": lambda value: ooc.open("a.npy", format=value),
    "decode": lambda value: ooc.open("a.npy", decode=value),
    "external": lambda value: ooc.open("a.h5", "x", external=value),
    "cut": lambda value: ROWS.pad(5, cut=value),
    "time_axis": lambda value: ooc.windows((VIEW, 1), time_axis=value),
    "pad": lambda value: VIEW.windows(2, pad=value),
    "shuffle_parts": lambda value: ooc.Interleave([5, 5], shuffle_parts=value),
    "parallel": lambda value: LOADER.explain(parallel=value),
    "prefetch": lambda value: LOADER.explain(prefetch=value),
    "by": lambda value: VIEW.split(0.5, 0.5, by=value),
    "labels": lambda value: ooc.balanced(value),
    "on": lambda value: ooc.join(VIEW, VIEW, on=value),
    "path of create": lambda value: ooc.create(value, element_shape=(), dtype="f4"),
    "overwrite": lambda value: ooc.create("a.npy", element_shape=(), dtype="f4", overwrite=value),
    "destination": lambda value: ooc.convert(VIEW, value),
    "verify": lambda value: ooc.convert(VIEW, "a.npy", verify=value),
    "overwrite by convert": lambda value: ooc.convert(VIEW, "a.npy", overwrite=value),
    "field": lambda value: ooc.open(np.zeros(3, [("x", "f4")]), field=value),
    "sparse": lambda value: LOADER.to_tf(sparse=value),
    "tolerance": lambda value: ooc.join(
        VIEW,
        VIEW,
        on=(NUMBERS, NUMBERS),
        how="nearest",
        tolerance=value if value is ROWS else 1 + 1j,
    ),
}


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("value", [NUMBERS * 1j, {}, ROWS], ids=["array", "dict", "ragged"])
def test_an_argument_that_is_no_such_thing_is_named(name, value):
    with pytest.raises(errors.ArgumentError, match=rf"^`{name.split()[0]}` must"):
        CALLS[name](value)


FLAGS = ["cut", "decode", "external", "time_axis", "shuffle_parts", "overwrite", "verify", "sparse"]


@pytest.mark.parametrize("name", FLAGS)
def test_a_word_is_no_flag(name):
    with pytest.raises(errors.ArgumentError, match=f"`{name}` must be True or False; got 'no'"):
        CALLS[name]("no")


@pytest.mark.parametrize(
    ("call", "got"),
    [
        (lambda loader: loader.epoch("0"), "got `start` 0 and `epoch` '0'"),
        (lambda loader: loader.epoch(0, start=1.5), "got `start` 1.5 and `epoch` 0"),
        (lambda loader: loader.batch("1"), "got `step` '1' and `epoch` 0"),
        (lambda loader: loader.batch(5, np.int64(0)), "got `step` 5 and `epoch` 0"),
    ],
)
def test_steps_and_epochs_are_whole_numbers(call, got):
    with pytest.raises(
        errors.PositionError, match=r"must be a whole number from 0 to [45]"
    ) as raised:
        call(LOADER)
    assert got in str(raised.value)


def test_what_was_split_must_be_a_dataset(tmp_path):
    ooc.save_split(tmp_path / "split.json", VIEW, VIEW.split(0.5, 0.5))
    with pytest.raises(errors.ArgumentError, match="`dataset` must be what was split; got None"):
        ooc.load_split(tmp_path / "split.json", None)


def test_rows_of_unequal_length_are_no_flags():
    with pytest.raises(errors.ArgumentError, match="`done` must have one number for each row"):
        ooc.episodes(done=ROWS)


def test_fields_that_are_none_make_no_dtype(tmp_path):
    (tmp_path / "a.bin").write_bytes(bytes(64))
    with pytest.raises(errors.ArgumentError, match="`dtype` must be a NumPy dtype"):
        ooc.open(tmp_path / "a.bin", dtype=[[1, 2], [3]], shape=(2,))


def test_a_tolerance_that_no_number_holds_is_named():
    days = NUMBERS.astype("M8[D]")
    with pytest.raises(errors.ArgumentError, match="`tolerance` must be a timedelta64"):
        ooc.join(VIEW, VIEW, on=(days, days), how="nearest", tolerance=10**30)


def test_a_message_does_not_quote_a_million_numbers():
    view, many = ooc.open(np.arange(3)), [0, *range(1_000_000)]
    calls = [
        lambda: view.windows(2, episodes=many),
        lambda: view.split(*many),
        lambda: view.batches(many),
        lambda: view.batches(2).batch(many),
    ]
    for call in calls:
        with pytest.raises(errors.OocdataError, match=r"^`\w+` must be .*got .*\d") as caught:
            call()
        assert len(str(caught.value)) < 5000
        assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


def test_lengths_of_a_spec_are_a_tuple():
    spec = ooc.ArraySpec([3, np.int64(4)], "f4")
    assert spec == ooc.ArraySpec((3, 4), np.dtype("f4"))
    assert hash(spec)
    assert ooc.open(np.zeros((2, 3, 4), "f4")).map(np.sqrt, spec=spec)[1].shape == (3, 4)
