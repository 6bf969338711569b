"""Test that splits of composed datasets and of windows with offsets share no row."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from recording import RecordingSource
from test_splits import ARRAY, EACH, ROWS, rows_read

import oocdata as ooc
from oocdata.datasets.dataset import Dataset
from oocdata.datasets.ids import as_ids
from oocdata.errors import ArgumentError


def check_apart(parts: Iterable[Dataset]) -> None:
    """Check that no row is read by two parts, by reading all elements."""
    read = [set.union(*rows_read(part)) for part in parts]
    assert len(set.union(*read)) == sum(map(len, read))


@pytest.mark.parametrize(
    "make",
    [
        lambda view: view,
        lambda view: view.windows(2, 1),
        lambda view: view.patches(2),
        lambda view: ooc.zip(view, view),
    ],
    ids=["views", "windows", "patches", "zips"],
)
def test_datasets_one_after_another(make: Callable[[ooc.View], Dataset]) -> None:
    views = ooc.open(ARRAY.copy()), ooc.open(ARRAY.copy() + ROWS * EACH)
    both = ooc.concat([make(view) for view in views])
    ids, places = np.arange(2 * ROWS) // 6 % 4, np.arange(2 * ROWS)
    check_apart(both.split(0.5, 0.5))
    check_apart(both.split(0.5, 0.5, by=ids))
    check_apart(both[::-1].split(0.5, 0.5, by=ids))
    check_apart(both.split_at(20, coordinate=places))
    for parts in both.folds(3):
        check_apart(parts)


def test_the_same_rows_twice_are_refused() -> None:
    view = ooc.open(ARRAY)
    with pytest.raises(ArgumentError, match="share no row with another part"):
        ooc.concat([view, view]).split(0.5, 0.5, by=np.arange(2 * ROWS))


def test_filtered_and_numbered_elements() -> None:
    view = ooc.open(ARRAY)
    kept = view.filter(np.arange(ROWS) % 2 == 0)
    assert list(map(len, kept.split(0.5, 0.5, by=np.arange(ROWS // 2) // 3))) == [6, 6]
    numbered = view.windows(2).enumerate()
    assert list(map(len, numbered.split(0.5, 0.5, by=np.arange(ROWS) // 6))) == [11, 11]


@pytest.mark.parametrize("gap", [0, 2])
@pytest.mark.parametrize("pad", [False, True])
def test_windows_with_offsets(pad: bool, gap: int) -> None:
    view = ooc.open(ARRAY)
    several: dict[str, Any] = {"x": (view, (-2, 0)), "y": (view[:, :2], 3)}
    for made in (
        view.windows((-3, 0, 2), (1, 4), pad=pad, mask=False),
        ooc.windows(several, pad=pad, mask=False),
    ):
        check_apart(made.split(0.5, 0.5, gap=gap))
        check_apart(made.split(0.5, 0.5, by=np.arange(ROWS) // 5))
        check_apart(made.split_at(11, coordinate=np.arange(ROWS), gap=gap))
        for parts in made.folds(2, gap=gap):
            check_apart(parts)


def test_states_one_longer_than_the_actions() -> None:
    states = ooc.open(np.arange(4 * 11).reshape(4, 11), axis=(0, 1))
    actions = ooc.open(np.arange(4 * 10).reshape(4, 10), axis=(0, 1))
    steps = ooc.windows({"s": states, "a": actions, "next": (states, (1,))}, time_axis=False)
    one, other = steps.split(0.5, 0.5, by=[0, 1, 0, 1])
    assert len(one) == len(other) == 20
    batch: Any = one.take(np.arange(20))
    assert np.unique(batch["s"] // 11).tolist() == np.unique(batch["a"] // 10).tolist() == [0, 2]
    assert [(len(train), len(held_out)) for train, held_out in steps.folds(4)] == [(30, 10)] * 4
    for parts in steps.folds(2, axis=1):
        read: list[set[int]] = []
        for part in parts:
            found: Any = part.take(np.arange(len(part)))
            read.append({*found["s"].tolist(), *found["next"].tolist()})
        assert not read[0] & read[1]


GRID = np.arange(4 * 10 * 3).reshape(4, 10, 3)


@pytest.mark.parametrize("axis", [None, 1])
@pytest.mark.parametrize("kind", ["rows", "windows", "patches", "map"])
@pytest.mark.parametrize("how", ["enumerate", "cache", "labels"])
def test_sample_axes_stay(kind: str, how: str, axis: int | None) -> None:
    """Test that enumerated, cached and labelled datasets are split like the original."""
    view = ooc.open(GRID, axis=(0, 1))
    made: Any = {
        "rows": view,
        "windows": view.windows(2, 1, shift=2),
        "patches": view.windows(2, 1).patches((2,)),
        "map": view.map(np.negative),
    }[kind]
    elements = made.take(range(len(made)))
    whole = made.cache() if how == "cache" else made.enumerate()
    if how == "labels":
        whole = ooc.zip(ooc.open(np.arange(len(made))), made)
    assert whole.sample_shape == made.sample_shape == (4, 10)
    for sizes in ((0.5, 0.5), (4, 5) if axis else (1, 2)):
        parts, expected = whole.split(*sizes, axis=axis), made.split(*sizes, axis=axis)
        for part, own in zip(parts, expected, strict=True):
            assert part.sample_shape == own.sample_shape
            taken, wanted = part.take(range(len(part))), own.take(range(len(own)))
            if how == "cache":
                assert_same(taken, wanted)
            else:
                places, taken = taken
                assert_same(taken, wanted)
                assert_same(tree(elements, lambda array, at=places: array[at]), wanted)
    again, own = (one.split(2, 2)[1].split(1, 1)[0] for one in (whole, made))
    taken = again.take(range(len(again)))
    assert_same(taken if how == "cache" else taken[1], own.take(range(len(own))))


def tree(batch: Any, change: Any) -> Any:
    return tuple(map(change, batch)) if isinstance(batch, tuple) else change(batch)


def assert_same(one: Any, other: Any) -> None:
    pairs = zip(one, other, strict=True) if isinstance(one, tuple) else [(one, other)]
    for first, second in pairs:
        np.testing.assert_array_equal(first, second)


def test_padded_windows_repeat_the_edges_of_episodes_and_of_no_part() -> None:
    """Test splits along time: the elements of a part are elements of the whole."""
    padded = ooc.open(GRID, axis=(0, 1)).windows(3, 1, pad=True).enumerate()
    train, val = padded.split(0.75, 0.25)
    assert (len(train), val[0][0]) == (30, 30)
    elements = padded.take(range(40))
    for parts in (padded.split(0.5, 0.5, axis=1), padded.folds(2, axis=1)[1]):
        for part, times in zip(parts, ({0, 1}, {5, 6, 7, 8, 9}), strict=True):
            places, taken = part.take(range(len(part)))
            assert places.tolist() == [at for at in range(40) if at % 10 in times]
            assert_same(taken, tree(elements[1], lambda array, at=places: array[at]))
    flat = ooc.open(GRID[0]).windows(3, 1, pad=True)
    parts = flat.split_at(5, coordinate=np.arange(10))
    assert [[*part.take(range(len(part)))[0][:, 0, 0]] for part in parts] == [
        [0, 3], [15, 18, 21, 24, 27],
    ]  # fmt: skip


def test_windows_of_other_rows_share_none_over_a_border() -> None:
    """Test windows that cross trajectories, whose elements are split by range."""
    flat = ooc.open(np.arange(43)).windows(4)
    both = ooc.zip(ooc.open(GRID, axis=(0, 1)), flat)
    assert both.sample_shape == (40,)
    train, val = both.split(0.5, 0.5)
    assert train[-1][1].max() < val[0][1].min()
    steps = ooc.zip(ooc.open(GRID, axis=(0, 1)).windows(2), flat[:36])
    with pytest.raises(ArgumentError, match="as many rows each"):
        steps.folds(2)
    steps = ooc.zip(ooc.open(GRID, axis=(0, 1)).windows(2), ooc.open(np.arange(40)).windows(5))
    for train, val in steps.folds(2):
        assert not np.intersect1d(*(part.take(range(len(part)))[1] for part in (train, val))).size


def test_groups_are_read_in_the_memory_of_their_values(tmp_path: Path) -> None:
    """Test a View of one byte a row; taken by position, it took 77 bytes a row."""
    groups = np.arange(2_000_000) // 500_000
    np.save(tmp_path / "groups.npy", groups.astype("u1"))
    view = ooc.open(tmp_path / "groups.npy")
    as_ids("by", view[:100])  # import the modules
    tracemalloc.start()
    ids = as_ids("by", view)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert np.array_equal(ids, groups)
    assert peak < 4 * view.nbytes


def test_images_given_as_groups_are_not_read() -> None:
    source = RecordingSource(np.zeros((10, 4, 4)))
    with pytest.raises(ArgumentError, match="`by` must have one value for each row; got <View"):
        ooc.open(np.arange(10)).split(0.5, 0.5, by=ooc.open(source))
    assert not source.reads


def test_ids_that_are_not_utf_8_are_refused() -> None:
    rows, ids = ooc.open(np.arange(3)), [b"ann", "Zo\u00eb".encode("latin-1"), b"ann"]
    for call in (
        lambda: ooc.balanced(ids),
        lambda: rows.split(0.5, 0.5, by=np.array(ids)),
        lambda: rows.split(0.5, 0.5, stratify=ooc.open(np.array(ids))),
        lambda: ooc.join(rows, rows, on=(ids, ids)),
    ):
        with pytest.raises(ArgumentError, match=r"must be text in UTF-8; that at 1 is b'Zo\\xeb'"):
            call()
