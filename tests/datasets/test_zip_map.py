"""Test zips and mapped functions."""

from __future__ import annotations

import pickle
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from forked import in_a_fork
from numpy.testing import assert_array_equal
from recording import RecordingSource

import oocdata as ooc
from oocdata.blocks import Blocks
from oocdata.datasets.dataset import Draw
from oocdata.datasets.spec import ArraySpec, align, as_spec, leaves, map_tree
from oocdata.errors import ArgumentError, EmptyError, MapError, UnsupportedDtypeError
from oocdata.testing import sample_array

ARRAY = sample_array((20, 4, 6))
LABELS = np.arange(20, dtype="i8")


def halved(x: np.ndarray) -> np.ndarray:
    return x / 2


def noisy(x: np.ndarray, *, rng: np.random.Generator) -> np.ndarray:
    return x + rng.normal(size=x.shape).astype("f4")


# --- zip


def test_tuples_and_dicts():
    image, label = ooc.open(ARRAY), ooc.open(LABELS)
    pair = ooc.zip(image, label)
    x, y = pair.take([3, 1])
    assert_array_equal(x, ARRAY[[3, 1]])
    assert_array_equal(y, [3, 1])
    named = ooc.zip({"image": image, "label": label})
    assert list(named[4]) == ["image", "label"]
    assert named[4]["label"] == 4
    assert [str(leaf) for leaf in leaves(named.spec)] == ["(4, 6) float32", "() int64"]
    assert len(pair) == len(named) == 20
    assert len(ooc.zip(image)[0]) == 1


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ((), "must get datasets"),
        (({},), "must get datasets"),
        ((ooc.open(LABELS), {"a": ()}), r"one dict of them; got \(<View: .*, \{'a': \(\)\}\)"),
        ((ARRAY,), "Open arrays with ooc.open"),
        ((ooc.open(LABELS), ARRAY), "must get datasets"),
        ((ooc.open(LABELS), ooc.open(LABELS[:19])), r"one length.*got 20, 19 for <.*memory; <"),
        (
            ({"a": ooc.open(LABELS), "b": ooc.open(LABELS)[::2]},),
            r"got 20, 10.*the same windows of each",
        ),
    ],
)
def test_invalid_zips(parts: tuple[Any, ...], message: str):
    with pytest.raises(ArgumentError, match=message):
        ooc.zip(*parts)


def test_one_label_for_each_file(tmp_path: Path):
    """Test what a wrong zip of files and their labels advises: one element for each file."""
    for number in range(3):
        np.save(tmp_path / f"{number}.npy", ARRAY[number])
    files, labels = str(tmp_path / "*.npy"), ooc.open(LABELS[:3])
    with pytest.raises(
        ArgumentError, match=r"got 12, 3 for .*\.npy.* open the files with axis=None"
    ):
        ooc.zip(ooc.open(files), labels)
    pairs = ooc.zip(ooc.open(files, axis=None), labels)
    batches = list(pairs.batches(2))
    assert_array_equal(np.concatenate([x for x, _ in batches]), ARRAY[:3])
    assert_array_equal(np.concatenate([y for _, y in batches]), LABELS[:3])


def test_labels_of_rows_beside_several_patches_of_each():
    view, labels = ooc.open(ARRAY), ooc.open(LABELS)
    crops = view.patches((4, 3), step=3)
    with pytest.raises(ArgumentError, match=r"got 40, 20.* view\[np\.repeat\(rows, 8\)\]"):
        ooc.zip(crops, labels)
    x, y = ooc.zip(crops, labels[np.repeat(np.arange(20), 2)]).batches(40).batch(0)
    assert_array_equal(x, np.stack([ARRAY[..., :3], ARRAY[..., 3:]], 1).reshape(40, 4, 3))
    assert_array_equal(y, np.repeat(LABELS, 2))


def test_a_zip_is_split_by_its_widest_part():
    zipped = ooc.zip(ooc.open(LABELS)[:16], ooc.open(ARRAY).windows(4, 1))
    assert [len(part) for part in zipped.split(0.5, 0.5)] == [6, 6]
    first, second = zipped.split(0.5, 0.5, gap=2)
    rows = [
        {
            start + number
            for start in part.requests(np.arange(len(part)), Draw())[1].origins[:, 0].tolist()
            for number in range(4)
        }
        for part in (first, second)
    ]
    assert not rows[0] & rows[1]


def test_the_blocks_of_a_zip_are_its_longest():
    zipped = ooc.zip(ooc.open(LABELS), ooc.open(RecordingSource(ARRAY, 6)))
    assert zipped.blocks == Blocks(6, 6)
    assert zipped[4:].blocks == Blocks(6, 2)


def test_a_batch_of_the_same_view_twice_is_two_arrays():
    view = ooc.open(ARRAY)
    one, two = ooc.zip(view, view).take([0, 1])
    one[...] = 9
    assert_array_equal(two, ARRAY[:2])


# --- map


def test_batches_and_elements_give_the_same():
    view = ooc.open(ARRAY)
    for batched in (True, False):
        mapped = view.map(halved, batched=batched)
        assert_array_equal(mapped.take([3, 5]), ARRAY[[3, 5]] / 2)
        assert str(mapped.spec) == "(4, 6) float32"
        assert_array_equal(mapped[4], ARRAY[4] / 2)
        assert_array_equal(mapped[::-2][1:].take([0]), ARRAY[[17]] / 2)


def test_tuples_are_arguments_and_dicts_are_one():
    image, label = ooc.open(ARRAY), ooc.open(LABELS)
    for batched in (True, False):
        pair = ooc.zip(image, label).map(lambda x, y: (x, y * 2), batched=batched)
        assert pair[3][1] == 6
        named = ooc.zip({"x": image, "y": label}).map(
            lambda element: {**element, "y": element["y"] * 2}, batched=batched
        )
        assert named[3]["y"] == 6
        listed = ooc.zip(image, label).map(lambda x, y: [y, x], batched=batched)
        assert isinstance(listed[3], tuple)
        one = image.map(lambda x: {"x": x}, batched=batched)
        assert list(one[0]) == ["x"]
        scalars = image.map(lambda x: x.sum(axis=(-1, -2)), batched=batched)
        assert scalars.spec.shape == ()


def test_a_function_may_change_its_arguments():
    def doubled(x: np.ndarray) -> np.ndarray:
        x *= 2
        return x

    original = ARRAY.copy()
    view = ooc.open(ARRAY)
    for batched in (True, False):
        for _ in range(2):
            assert_array_equal(
                view.map(doubled, batched=batched).take([1, 1]), original[[1, 1]] * 2
            )
    assert_array_equal(ARRAY, original)


def test_random_numbers_depend_on_the_batch_alone():
    loader = ooc.open(ARRAY).map(noisy, rng=True).batches(4, shuffle=True, seed=3)
    copy = pickle.loads(pickle.dumps(loader))
    batches = [copy.batch(step, epoch) for epoch in (0, 1) for step in range(5)]
    assert_array_equal(loader.batch(3, 1), batches[8])
    assert_array_equal(loader.batch(0, 0), batches[0])
    noises = [batch - ARRAY[loader.positions(i % 5, i // 5)] for i, batch in enumerate(batches)]
    assert len({noise.tobytes() for noise in noises}) == 10
    other = ooc.open(ARRAY).map(noisy, rng=True).batches(4, seed=4).batch(0)
    assert not np.array_equal(
        other, ooc.open(ARRAY).map(noisy, rng=True).batches(4, seed=3).batch(0)
    )


def test_elements_of_a_batch_do_not_get_the_same_random_numbers():
    mapped = ooc.open(np.zeros((5, 3), "f4")).map(noisy, rng=True, batched=False)
    batch = mapped.take(range(5))
    assert len({row.tobytes() for row in batch}) == 5


@pytest.mark.parametrize("order", [">", "<"])
def test_results_come_in_native_byte_order(order: str):
    """Test byte order, which TensorFlow ignores."""
    for batched in (True, False):
        mapped = ooc.open(ARRAY).map(lambda x: x.astype(f"{order}f4"), batched=batched)
        assert mapped.spec.dtype.isnative
        assert mapped.take([1]).dtype.isnative
        assert_array_equal(mapped.take([1]), ARRAY[[1]])
        given = ooc.open(ARRAY).map(halved, spec=ArraySpec((4, 6), np.dtype(f"{order}f4")))
        assert given.spec.dtype.isnative
        assert_array_equal(given.take([1]), ARRAY[[1]] / 2)


def test_names_keep_their_arrays_in_whatever_order_they_come():
    def fickle(x: np.ndarray) -> dict[str, np.ndarray]:
        a, b = x, -x
        return {"a": a, "b": b} if x.flat[0] == 0 else {"b": b, "a": a}

    for batched in (True, False):
        mapped = ooc.open(ARRAY).map(fickle, batched=batched)
        batch = mapped.take([3, 0, 2])
        assert list(batch) == list(mapped.spec) == ["a", "b"]
        assert_array_equal(batch["a"], ARRAY[[3, 0, 2]])
        assert_array_equal(next(leaves(batch)), ARRAY[[3, 0, 2]])


def test_with_a_spec_the_function_is_not_tried():
    calls: list[int] = []

    def count(x: np.ndarray) -> np.ndarray:
        calls.append(len(x))
        return x

    source = RecordingSource(ARRAY)
    mapped = ooc.open(source).map(count, spec=ooc.open(ARRAY).spec)
    assert str(mapped.spec) == "(4, 6) float32"
    assert (calls, source.rows) == ([], [])
    mapped.take([5])
    assert source.rows == [[5]]
    tried = ooc.open(source).map(count)
    assert tried.spec is tried.spec
    assert calls == [1, 1]
    tried[3:].map(halved)[::2].take([0])
    assert source.rows == [[5], [0], [3], [3]]


SHORT = "must keep the 4 elements"


@pytest.mark.parametrize(
    ("function", "batched", "message"),
    [
        (lambda x: x[:2], True, SHORT),
        (lambda x: x.sum(), True, SHORT),
        (lambda x: None, True, "returned None"),
        (lambda x: {}, False, r"must return its result; .* returned {}"),
        (lambda x: (), True, r"must return its result; .* returned \(\)"),
        (lambda x: (x, x[:3]), True, SHORT),
        (lambda x: x.astype("f8"), True, r"\(4, 6\) float32; .* returned \(4, 6\) float64"),
        (lambda x: x[:, 0], True, r"returned \(6,\) float32\. Give all results one shape"),
        (lambda x: (x, x), True, r"returned \(\(4, 6\) float32, \(4, 6\) float32\)"),
        (lambda x: (x,), True, r"returned \(\(4, 6\) float32,\)"),
        (lambda x: {"a": x}, True, r"returned {'a': \(4, 6\) float32}"),
        (lambda x: x[: 1 + int(x[0, 0]) // 24 % 2], False, "one shape"),
        (lambda x: x if x[0, 0] else (x, x), False, "one shape|one structure"),
        (lambda x: x if x[0, 0] else x[:1], False, "one shape"),
    ],
)
def test_results_that_differ_from_the_spec(function: Any, batched: bool, message: str):
    spec = ooc.open(ARRAY).spec
    mapped = ooc.open(ARRAY).map(function, batched=batched, spec=spec)
    with pytest.raises(MapError, match=message) as raised:
        mapped.take([0, 1, 2, 3])
    assert "lambda" in str(raised.value)


def test_results_that_differ_between_batches():
    mapped = ooc.open(ARRAY).map(lambda x: x if x[0, 0, 0] == 0 else x.astype("f8"))
    with pytest.raises(MapError, match=r"float32; .*float64"):
        mapped.take([1])


@pytest.mark.parametrize(
    "use",
    [
        lambda mapped: mapped.spec,
        lambda mapped: mapped.batches(4).spec,
        lambda mapped: mapped.batches(4).explain(),
        lambda mapped: mapped.batches(4, workers=1),
        lambda mapped: list(mapped.batches(4)),
        lambda mapped: mapped[3],
        lambda mapped: ooc.zip(mapped, ooc.open(LABELS)).batches(4).spec,
        lambda mapped: ooc.concat([mapped, mapped]),
    ],
)
def test_an_attribute_error_of_a_function_is_raised_as_it_is(use: Any):
    """A property that calls the function must not turn it into "has no attribute 'spec'"."""
    with pytest.raises(AttributeError, match="no attribute 'numpy'"):
        use(ooc.open(ARRAY).map(lambda x: x.numpy()))


@pytest.mark.parametrize(
    ("batched", "note"),
    [
        (True, "a batch: (3, 4, 6) float32, (3,) int64. With batched=False it gets one element."),
        (False, "one element: (4, 6) float32, () int64."),
    ],
)
def test_a_note_says_what_a_function_was_called_with(batched: bool, note: str):
    def one(x: np.ndarray) -> np.ndarray:
        return x

    pairs = ooc.zip(ooc.open(ARRAY), ooc.open(LABELS))
    with pytest.raises(TypeError, match="takes 1 positional argument but 2 were") as raised:
        pairs.map(one, batched=batched).take([0, 1, 2])
    assert raised.value.__notes__ == [f"'one' of `map` was called with {note}"]


def test_errors_of_functions_are_raised():
    def fail(x: np.ndarray) -> np.ndarray:
        raise ZeroDivisionError("mine")

    for batched in (True, False):
        mapped = ooc.open(ARRAY).map(fail, batched=batched)
        with pytest.raises(ZeroDivisionError, match="mine"):
            mapped.take([0])
        with pytest.raises(ZeroDivisionError, match="mine") as raised:
            _ = mapped.spec
        assert raised.value.__context__ is None  # the traceback has nothing else in it


@pytest.mark.parametrize("value", [np.zeros(1, "V2"), np.array([{}]), np.zeros(1, "M8[s]")])
def test_results_that_batches_cannot_hold(value: np.ndarray):
    with pytest.raises((UnsupportedDtypeError, MapError), match=r"must be|must make"):
        ooc.open(ARRAY).map(lambda x: np.repeat(value, len(x))).take([0, 1])


@pytest.mark.parametrize("batched", [True, False])
def test_masked_results_are_refused_rather_than_unmasked(batched: bool):
    def negative(x: np.ndarray) -> np.ndarray:
        return np.ma.masked_less(x, 6)

    view = ooc.open(ARRAY)
    with pytest.raises(MapError, match=r"masked.*filled"):
        view.map(negative, batched=batched).take([0, 2])
    assert_array_equal(view[1:].map(negative, batched=batched).take([0, 1]), ARRAY[1:3])


def test_wrong_arguments():
    view = ooc.open(ARRAY)
    with pytest.raises(ArgumentError, match="`fn` must be a function; got 3"):
        view.map(3)
    with pytest.raises(ArgumentError, match="`spec` must hold things with a shape and a dtype"):
        view.map(halved, spec="f4")
    with pytest.raises(UnsupportedDtypeError):
        view.map(halved, spec=np.zeros(1, "M8[s]"))


def test_nothing_to_map():
    for batched in (True, False):
        mapped = ooc.open(ARRAY).map(lambda x: (x, x.sum(keepdims=True)[..., 0]), batched=batched)
        if not batched:
            x, total = mapped.take([])
            assert (x.shape, total.shape) == ((0, 4, 6), (0, 1))
        with pytest.raises(EmptyError, match="`spec` must be given"):
            _ = ooc.open(ARRAY)[:0].map(halved, batched=batched).spec
        known = ooc.open(ARRAY)[:0].map(halved, batched=batched, spec=ooc.open(ARRAY).spec)
        assert known.take([]).shape == (0, 4, 6)


def test_nothing_is_read_to_select_nothing():
    source = RecordingSource(ARRAY, 5)
    _ = ooc.open(source).map(halved)[:0]
    assert source.rows == []


def test_splits_and_blocks_equal_those_of_the_mapped_dataset():
    pairs = ooc.open(RecordingSource(ARRAY, 5)).next_frame()
    mapped = pairs.map(lambda x, y: (x, y))
    assert mapped.blocks == pairs.blocks
    assert [len(p) for p in mapped.split(0.5, 0.5)] == [len(p) for p in pairs.split(0.5, 0.5)]
    assert "lambda" in repr(mapped)


# --- trees


def test_trees():
    tree = (1, {"b": 2, "a": (3, 4)}, ())
    assert list(leaves(tree)) == [1, 2, 3, 4]
    assert map_tree(str, tree) == ("1", {"b": "2", "a": ("3", "4")}, ())
    assert list(align({"a": (1, 2), "b": 3}, {"b": 0, "a": (0, 0)})) == ["b", "a"]


@pytest.mark.parametrize(
    ("tree", "pattern"),
    [(1, (1,)), ((1,), 1), ((1,), (1, 2)), ({"a": 1}, {"b": 1}), ({"a": 1}, 1), (({},), ((),))],
)
def test_trees_that_differ(tree: Any, pattern: Any):
    with pytest.raises(ValueError, match=r"differ|zip"):
        align(tree, pattern)


def test_specs():
    assert str(ArraySpec((None, 3), np.dtype("f4"))) == "(None, 3) float32"
    assert ArraySpec((3,), "f4") == ArraySpec((3,), np.float32) == ArraySpec((3,), np.dtype("f4"))
    with pytest.raises(ArgumentError, match="`dtype` must be a NumPy dtype; got 'f5'"):
        ArraySpec((3,), "f5")
    assert str(ArraySpec((3,), np.dtype("f4"))) == "(3,) float32"
    assert ArraySpec((None, 3), np.dtype("f4")).nbytes == 12
    assert as_spec({"a": np.zeros((2, 3))}) == {"a": ArraySpec((2, 3), np.dtype("f8"))}
    with pytest.raises(ArgumentError, match="`spec` must hold"):
        as_spec((np.zeros(3), None))


def test_draws_outside_a_loader_depend_on_the_positions():
    noisy = ooc.open(np.zeros((10, 2))).map(lambda x, rng: x + rng.random(x.shape), rng=True)
    assert_array_equal(noisy.take([1, 2]), noisy.take([1, 2]))
    assert not np.array_equal(noisy[1], noisy[2])
    assert not np.array_equal(noisy.__getitems__([0, 1]), noisy.__getitems__([2, 3]))


@pytest.mark.parametrize("result", [None, "a", ["a", "b", "c"], object()])
def test_results_that_are_not_numbers(result: Any):
    mapped = ooc.open(np.zeros((3, 2))).map(lambda x: result)
    with pytest.raises(
        MapError, match=r"returned None\. Add `return`|must keep the 3 elements|arrays of numbers"
    ):
        mapped.take([0, 1, 2])


def test_a_target_of_none_is_left_out():
    """Test `(x, None)`, which generators for Keras yield where a model needs no targets."""
    view = ooc.open(np.zeros((3, 2)))
    with pytest.raises(MapError, match=r"leave out None\.$"):
        view.map(lambda x: ((x, x), None)).take([0])
    assert len(view.map(lambda x: ((x, x),)).take([0])) == 1


def test_a_view_is_no_mask():
    view, labels = ooc.open(ARRAY), ooc.open(LABELS)
    for mask in (labels == 3, labels != 3):
        with pytest.raises(ArgumentError, match=r"np\.asarray\(labels\) == 3"):
            view[mask]
    assert len(view[np.asarray(labels) == 3]) == 1


def test_zip_of_one_tuple():
    a, b = ooc.open(np.arange(3)), ooc.open(np.arange(3.0))
    assert ooc.zip((a, b))[1] == ooc.zip([a, b])[1] == ooc.zip(a, b)[1] == (1, 1.0)


def test_a_slow_function_does_not_block_other_datasets() -> None:
    """Test forks too: Python 3.11 has one lock for the cached properties of all objects."""
    inside, go = threading.Event(), threading.Event()

    def slow(x: np.ndarray) -> np.ndarray:
        inside.set()
        assert go.wait(60)
        return x

    rows = ooc.open(np.arange(10.0))
    with ThreadPoolExecutor(2) as threads:
        waiting = threads.submit(lambda: rows.map(slow).spec)
        assert inside.wait(30)
        try:
            other = threads.submit(lambda: rows.map(np.negative).spec).result(30)
            assert in_a_fork(lambda: rows.map(np.negative).spec) == str(other)
        finally:
            go.set()
        assert waiting.result() == other
