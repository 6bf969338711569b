"""Test splits by groups, classes, borders and folds, by reading the parts."""

from __future__ import annotations

import json
import re
import tracemalloc
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from counting import counted
from hypothesis import example, given, settings
from hypothesis import strategies as st
from layout_files import write_anndata
from numpy.testing import assert_array_equal

import oocdata as ooc
from oocdata.datasets.spec import leaves
from oocdata.datasets.splits import class_parts, group_parts, shares
from oocdata.errors import (
    ArgumentError,
    DescriptionError,
    EmptyError,
    MissingFileError,
    RestoreError,
    SourceError,
)

ROWS, EACH = 24, 6
ARRAY = np.arange(ROWS * EACH).reshape(ROWS, EACH)
RUNS = np.arange(4 * 10 * EACH).reshape(4, 10, EACH)


def double(*arrays: np.ndarray) -> Any:
    return arrays if len(arrays) > 1 else arrays[0]


KINDS: dict[str, Callable[[ooc.View], ooc.Dataset]] = {
    "view": lambda v: v,
    "windows": lambda v: v.windows(3, 2),
    "windows by steps": lambda v: v.windows(2, 1, shift=2, stride=2, horizon=3),
    "windows of episodes": lambda v: v.windows(2, episodes=[5, len(v) - 5]),
    "chosen windows": lambda v: v.windows(2)[::-2],
    "next_frame": lambda v: v.next_frame(2),
    "patches": lambda v: v.patches(2, per_row=3),
    "patches of windows": lambda v: v.windows(2, 1).patches(2),
    "zip": lambda v: ooc.zip(v[:, :3], v[:, 3:]),
    "zip of windows": lambda v: ooc.zip({"x": v.windows(3), "y": v[:, :2].windows(3)}),
    "zip with labels": lambda v: ooc.zip(v.windows(2), ooc.open(-1 - np.arange(len(v) - 1))),
    "map": lambda v: v.windows(2, 1).map(double),
    "zip of maps": lambda v: ooc.zip(v.next_frame().map(double), v.windows(1, 1)),
}


def rows_read(dataset: ooc.Dataset, row_size: int = EACH) -> list[set[int]]:
    """Return the row numbers in each element, by reading it."""
    batch = dataset.take(np.arange(len(dataset)))
    arrays = [np.asarray(array).reshape(len(dataset), -1) for array in leaves(batch)]
    numbers = np.concatenate(arrays, axis=1) // row_size
    return [{row for row in each if row >= 0} for each in numbers.tolist()]


def check_parts(dataset: ooc.Dataset, parts: Iterable[ooc.Dataset], sets: list[set[int]]) -> None:
    """Check that each part has the elements with all rows in its set, in order."""
    every = np.stack([np.ravel(leaf) for leaf in [rows_of_all(dataset)]], axis=1)
    rows = rows_read(dataset)
    for part, allowed in zip(parts, sets, strict=True):
        expected = [at for at, used in enumerate(rows) if used <= allowed]
        assert_array_equal(rows_of_all(part), every[expected, 0])


def rows_of_all(dataset: ooc.Dataset) -> np.ndarray:
    """Return one number for each element: the first value of its first array."""
    first = next(leaves(dataset.take(np.arange(len(dataset)))))
    return first.reshape(len(dataset), -1)[:, 0]


# Groups ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@given(st.data())
@settings(max_examples=8)
def test_groups_stay_whole(kind: str, data: st.DataObject):
    number = data.draw(st.integers(2, 6))
    lengths = data.draw(st.lists(st.integers(1, 6), min_size=number, max_size=number))
    ids = np.resize(np.repeat(np.arange(number) * 7 - 3, lengths), ROWS)
    seed = data.draw(st.sampled_from([None, 0, 5]))
    sizes = data.draw(st.sampled_from([(0.5, 0.5), (0.6, 0.2), (0.25, 0.25, 0.5)]))
    dataset = KINDS[kind](ooc.open(ARRAY))
    try:
        parts = dataset.split(*sizes, by=ids, seed=seed)
    except EmptyError:
        return
    of_row = group_parts(ids, shares(sizes, len(ids)), seed)
    sets = [set(np.flatnonzero(of_row == part).tolist()) for part in range(len(sizes))]
    groups = [set(ids[list(rows)]) for rows in sets]
    assert sum(map(len, groups)) == len(set.union(*groups))  # no group in two parts
    if "patches" not in kind:  # random patches would differ
        check_parts(dataset, parts, sets)
    for part, allowed in zip(parts, sets, strict=True):
        assert set.union(*rows_read(part)) <= allowed


@given(st.lists(st.integers(1, 9), min_size=2, max_size=9), st.integers(2, 4), st.booleans())
@example([1, 1, 9], 3, True)
def test_the_border_is_the_nearest_between_two_groups(
    lengths: list[int], number: int, floats: bool
):
    ids = np.repeat(np.arange(len(lengths))[::-1], lengths)
    total = len(ids)
    sizes = [1 / number] * number if floats else [total // number] * number
    if total < number:
        return
    if len(lengths) < number:
        with pytest.raises(EmptyError, match=f"got {len(lengths)} groups for {number} parts"):
            group_parts(ids, shares(sizes, len(ids)), None)
        return
    parts = group_parts(ids, shares(sizes, len(ids)), None)
    assert (np.diff(parts[parts >= 0]) >= 0).all()  # adjacent groups: ranges
    ends = np.cumsum(lengths).tolist()
    found = [int((parts == part).sum()) for part in range(number)]
    assert min(found) > 0
    share = total / number if floats else total // number
    if len(lengths) >= 3 * number and max(lengths) <= share:
        for part in range(number):
            wanted = share * (part + 1)
            assert abs(sum(found[: part + 1]) - wanted) == pytest.approx(
                min(abs(end - wanted) for end in ends), abs=1e-6
            )


def test_groups_of_dates_and_texts_and_of_places():
    view = ooc.open(ARRAY)
    days = np.datetime64("2020-01-01") + np.arange(ROWS) // 5
    texts = [f"patient {row // 5}" for row in range(ROWS)]
    for ids in (
        days,
        texts,
        np.array(texts, "S"),
        np.array(texts, object),
        ooc.open(days.view("i8")),
    ):
        parts = view.split(0.5, 0.5, by=ids)
        assert [part.rows for part in parts] == [range(10), range(10, 24)]
    runs = ooc.open(RUNS, axis=(0, 1))
    for windows in (runs, runs.windows(3, 1)):
        first, second = windows.split(0.5, 0.5, by=["a", "b", "a", "b"])
        used = [set.union(*rows_read(part)) for part in (first, second)]
        assert used == [{*range(10), *range(20, 30)}, {*range(10, 20), *range(30, 40)}]
        along = windows.split(0.5, 0.5, by=np.arange(10) // 5, axis=1)
        halves = [set.union(*rows_read(part)) for part in along]
        assert halves == [{row for row in range(40) if (row % 10 < 5) == early} for early in (1, 0)]
    # No window crosses from one selected trajectory to the next.
    pairs = runs.split(2, 2, by=[0, 1, 0, 1])[0].next_frame()
    assert len(pairs) == 2 * 9


def test_a_seed_shuffles_groups():
    ids = np.repeat(np.arange(12), 2)
    found = {tuple(ooc.open(ARRAY).split(0.5, 0.5, by=ids, seed=seed)[0].rows) for seed in range(9)}
    assert len(found) > 5
    pinned = group_parts(np.arange(8), (0.5, 0.5), 7)
    assert pinned.tolist() == [1, 0, 0, 0, 1, 0, 1, 1]  # on all platforms, in all versions
    pinned = class_parts(np.arange(8) % 2, (0.5, 0.5), 7)
    assert pinned.tolist() == [0, 1, 1, 0, 1, 0, 0, 1]


# Classes -----------------------------------------------------------------------------------------


SHARES = st.sampled_from([(0.8, 0.2), (0.5, 0.25, 0.25), (1 / 3, 1 / 3, 1 / 3), (0.7, 0.1), (0.1,)])


@given(st.lists(st.integers(1, 40), min_size=1, max_size=12), SHARES, st.integers(0, 3))
def test_each_class_has_its_share(counts: list[int], sizes: tuple[float, ...], seed: int):
    rng = np.random.default_rng(0)
    labels = rng.permutation(np.repeat(np.arange(len(counts)) * 3, counts))
    parts = class_parts(labels, shares(sizes, len(labels)), seed)
    for part, size in enumerate(sizes):
        for label, count in enumerate(counts):
            assert abs((parts[labels == label * 3] == part).sum() - count * size) < 1 + 1e-6
        assert abs((parts == part).sum() - len(labels) * size) < 1 + 1e-6
    if sum(sizes) > 0.99:
        assert (parts >= 0).all()


@given(st.lists(st.integers(1, 9), min_size=3, max_size=9), st.data())
def test_counts_are_exact(counts: list[int], data: st.DataObject):
    labels = np.repeat(np.arange(len(counts)), counts)
    sizes = data.draw(st.lists(st.integers(1, len(labels) // 3), min_size=1, max_size=3))
    parts = class_parts(labels, shares(sizes, len(labels)), 1)
    assert [int((parts == part).sum()) for part in range(len(sizes))] == sizes


def test_classes_are_drawn_at_random_and_stay_in_order():
    view, labels = ooc.open(ARRAY), np.arange(ROWS) % 3
    parts = [view.split(0.5, 0.5, stratify=labels, seed=seed) for seed in range(6)]
    assert len({tuple(first.rows) for first, _ in parts}) == 6
    for first, second in parts:
        assert (np.diff(first.rows) > 0).all()
        assert sorted([*first.rows, *second.rows]) == list(range(ROWS))
        assert np.bincount(labels[first.rows]).tolist() == [4, 4, 4]
    assert tuple(view.split(0.5, 0.5, stratify=labels)[0].rows) == tuple(parts[0][0].rows)
    patches = view.patches(2, per_row=2).split(0.5, 0.5, stratify=labels)[0]
    assert [len(rows) for rows in rows_read(patches)] == [1] * 24
    assert np.bincount([row for (row,) in rows_read(patches)]).max() == 2


def test_classes_of_groups():
    groups = np.repeat(np.arange(8), 3)
    labels = np.repeat([0, 1, 1, 0, 0, 1, 0, 1], 3)
    windows = ooc.open(ARRAY).windows(2)
    first, second = windows.split(0.5, 0.5, by=groups, stratify=labels)
    for part in (first, second):
        used = np.array(sorted(set.union(*rows_read(part))))
        whole, counts = np.unique(groups[used], return_counts=True)
        assert counts.tolist() == [3] * 4
        assert np.bincount(labels[whole * 3]).tolist() == [2, 2]
    with pytest.raises(
        ArgumentError, match="one class for each group of `by`; group 2 has 0 and 1"
    ):
        windows.split(0.5, 0.5, by=groups, stratify=[1] * 6 + [0] + [1] * 17)
    with pytest.raises(ArgumentError, match=r"`stratify` must come with `by` for windows"):
        windows.split(0.5, 0.5, stratify=labels)


def test_chunks_are_decoded_once_for_a_part_chosen_row_by_row():
    view, decoded = counted(np.arange(400).reshape(100, 4), 10, 4)
    train, _ = view.split(0.8, 0.2, stratify=np.arange(100) % 7)
    for batch in train.batches(8, shuffle=True, seed=3):
        assert len(batch) <= 8
    assert set(decoded.values()) == {1}
    assert len(decoded) == 10


# Borders of a coordinate -------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@given(st.data())
@settings(max_examples=8)
def test_borders_of_dates(kind: str, data: st.DataObject):
    gap = data.draw(st.integers(0, 3))
    hours = np.array(data.draw(st.lists(st.integers(0, 30), min_size=ROWS, max_size=ROWS)))
    days = np.datetime64("2015-12-20", "h") + 12 * (np.sort(hours) if gap else hours)
    dataset = KINDS[kind](ooc.open(ARRAY))
    borders = ["2015-12-24T12", np.datetime64("2015-12-30")]
    try:
        parts = dataset.split_at(*borders, coordinate=days, gap=gap)
    except EmptyError:
        return
    first, second = np.datetime64(borders[0]), borders[1]
    of_row = (days >= first).astype(int) + (days >= second)
    used = [set(np.flatnonzero(of_row == part).tolist()) for part in range(3)]
    if gap:
        for part in (0, 1):
            after = min((row for rows in used[part + 1 :] for row in rows), default=ROWS)
            used[part] = {row for row in used[part] if row < after - gap}
    if "patches" not in kind:
        check_parts(dataset, parts, used)
    for part, allowed in zip(parts, used, strict=True):
        assert set.union(*rows_read(part)) <= allowed


def test_borders_of_numbers_of_several_axes_and_of_xarray():
    xr = pytest.importorskip("xarray")
    runs = ooc.open(RUNS, axis=(0, 1))
    early, late = runs.windows(2).split_at(0.6, coordinate=np.arange(10) / 10, axis=1)
    assert [len(early), len(late)] == [4 * 5, 4 * 3]
    hours = xr.date_range("2019-12-31T12:00", periods=ROWS, freq="h")
    data = xr.DataArray(ARRAY, coords={"time": hours}, dims=("time", "x"))
    for coordinate in (data["time"], ooc.open(data["time"].to_numpy())):
        parts = ooc.open(data).split_at("2020", coordinate=coordinate)
        assert [part.rows for part in parts] == [range(12), range(12, 24)]


@pytest.mark.parametrize(
    "border", [1_700_000_000_000_000_003, np.uint64(1_700_000_000_000_000_003)]
)
@pytest.mark.parametrize("dtype", ["u8", "i8", "M8[ns]"])
def test_a_border_among_large_numbers_is_exact(border: Any, dtype: str):
    """Test times in nanoseconds, which float64 can't distinguish."""
    times = (1_700_000_000_000_000_000 + np.arange(6)).astype(dtype)
    if dtype == "M8[ns]":
        border = np.datetime64(int(border), "ns")
    assert [len(part) for part in ooc.open(np.arange(6)).split_at(border, coordinate=times)] == [
        3,
        3,
    ]


def test_years_that_nanoseconds_cannot_hold():
    years = np.arange("1500", "1800", dtype="M8[Y]").astype("M8[D]")
    border = np.datetime64("1750-01-01T00:00:00.000000001")
    first, second = ooc.open(np.arange(300)).split_at(border, coordinate=years)
    assert (len(first), second[0]) == (251, 251)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda v: v.split_at(coordinate=range(24)), "borders must be at least one, and ascend"),
        (lambda v: v.split_at(5, 5, coordinate=range(24)), "and ascend"),
        (lambda v: v.split_at(np.nan, coordinate=range(24)), "can hold; got nan"),
        (lambda v: v.split_at("2016", coordinate=range(24)), "borders must be numbers"),
        (lambda v: v.split_at(-1, coordinate=np.arange(24, dtype="u8")), "can hold; got -1"),
        (lambda v: v.split_at(2**70, coordinate=range(24)), "the coordinate, int64, can hold"),
        (lambda v: v.split_at("2300", coordinate=np.zeros(24, "M8[ns]")), "can hold; got"),
        (lambda v: v.split_at(5, coordinate=range(23)), "each of the 24 rows; got 23"),
        (lambda v: v.split_at(5, coordinate=["a"] * 24), "must be numbers or dates"),
        (lambda v: v.split_at(5, coordinate=[*range(23), np.nan]), "that at 23 is nan"),
        (lambda v: v.split_at("x", coordinate=np.zeros(24, "M8[s]")), "borders must be dates"),
        (lambda v: v.split_at(5, coordinate=[*range(23, -1, -1)], gap=1), "must ascend for a gap"),
    ],
)
def test_wrong_borders(call: Any, message: str):
    with pytest.raises(ArgumentError, match=message):
        call(ooc.open(ARRAY))


# Folds -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("how", ["range", "by", "stratify"])
def test_folds_share_no_row_and_each_row_is_for_validation_once(kind: str, how: str):
    dataset = KINDS[kind](ooc.open(ARRAY))
    ids = {"by": np.arange(ROWS) // 4, "stratify": np.arange(ROWS) % 2}
    given_ids = {} if how == "range" else {how: ids[how]}
    if how == "stratify" and max(map(len, rows_read(dataset))) > 1:
        with pytest.raises(ArgumentError, match="must come with `by` for windows"):
            dataset.folds(3, **given_ids)
        return
    for gap in (0, 2) if how == "range" else (0,):
        folds = dataset.folds(3, gap=gap, **given_ids)
        seen: list[int] = []
        for number, (training, validation) in enumerate(folds):
            one, other = (set.union(*rows_read(part)) for part in (training, validation))
            apart = min(abs(a - b) for a in one for b in other)
            assert apart > gap
            seen += other
            if how == "range" and "patches" not in kind:
                first = 8 * number
                own = set(range(first, first + 8))
                rest = {r for r in range(ROWS) if r < first - gap or r >= first + 8 + gap}
                check_parts(dataset, (training, validation), [rest, own])
        assert len(seen) == len(set(seen))
        if kind in ("view", "zip", "patches"):
            assert sorted(seen) == list(range(ROWS))


def test_folds_of_trajectories():
    runs = ooc.open(RUNS, axis=(0, 1))
    for dataset in (runs, runs.windows(3)):
        for number, (training, validation) in enumerate(dataset.folds(4)):
            one, other = (set.union(*rows_read(part)) for part in (training, validation))
            assert other == set(range(number * 10, number * 10 + 10))
            assert one == set(range(40)) - other
    pairs = runs.next_frame().folds(2, axis=1, gap=1)
    assert [(len(one), len(other)) for one, other in pairs] == [(12, 16), (12, 16)]
    with pytest.raises(ArgumentError, match="`k` must"):
        runs.folds(1)
    with pytest.raises(EmptyError, match=r"got 0\.2, .* of 4"):
        runs.folds(5)


# One row at several positions --------------------------------------------------------------------


SHIFTED: dict[str, Callable[[ooc.View], ooc.Dataset]] = {
    "views": lambda v: ooc.zip(v[:-3], v[3:]),
    "maps": lambda v: ooc.zip(v[:-1].map(double), v[1:]),
    "reversed": lambda v: ooc.zip(v[10::-1], v[11:0:-1]),
    "chosen": lambda v: ooc.zip(v[[0, 2, 4, 7, 9, 11, 13]], v[[2, 4, 7, 9, 11, 13, 15]]),
    "windows": lambda v: ooc.zip(v.windows(2)[:-2], v.windows(2)[2:]),
    "windows and rows": lambda v: ooc.zip(v.windows(2), v[1:]),
    "patches": lambda v: ooc.zip(v[:-1].patches(2), v[1:].patches(2)),
    "windows in turns": lambda v: ooc.zip(v.windows(4)[:20:2], v.windows(4)[1:20:2]),
}


@pytest.mark.parametrize("kind", SHIFTED)
def test_parts_of_a_zip_with_repeated_rows_share_none(kind: str):
    dataset = SHIFTED[kind](ooc.open(ARRAY))
    parts = dataset.split(0.5, 0.5)
    one, other = (set.union(*rows_read(part)) for part in parts)
    assert not one & other
    assert len(dataset) - sum(map(len, parts)) <= 9
    if kind in ("views", "maps", "reversed", "chosen"):
        for training, validation in dataset.folds(2):
            assert not set.union(*rows_read(training)) & set.union(*rows_read(validation))
        first, second = dataset.split_at(5, coordinate=np.arange(len(dataset)))
        assert not set.union(*rows_read(first)) & set.union(*rows_read(second))
    if kind == "windows in turns":
        parts = dataset.split(0.5, 0.5, by=np.arange(ROWS) // 4)
        one, other = (set.union(*rows_read(part)) for part in parts)
        assert not one & other
        return
    ids = np.arange(len(dataset._row_positions(0)))
    if kind in ("windows", "windows and rows"):  # these are in the part of their other rows
        parts = dataset.split(0.5, 0.5, by=ids // 4)
        one, other = (set.union(*rows_read(part)) for part in parts)
        assert not one & other
        return
    with pytest.raises(ArgumentError, match="share no row with another part"):
        dataset.split(0.5, 0.5, by=ids)


def test_other_rows_of_one_array_are_no_reason():
    view = ooc.open(ARRAY)
    assert [len(p) for p in ooc.zip(view[::2], view[1::2]).split(0.5, 0.5)] == [6, 6]
    assert [len(p) for p in ooc.zip(view[:12], view[12:]).split(0.5, 0.5)] == [6, 6]


# Wrong calls -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda v: v.split(0.5, 0.5, seed=1), "`seed` must come with `by` or `stratify`"),
        (lambda v: v.split(0.5, 0.5, by=range(24), seed="7"), "`seed` must be a whole number"),
        (lambda v: v.split(0.5, 0.5, by=range(23)), "each of the 24 rows; got 23"),
        (lambda v: v.windows(3).split(0.5, 0.5, by=range(22)), "each of the 24 rows; got 22"),
        (lambda v: v.split(0.5, 0.5, by=np.zeros((24, 1))), "in one dimension; got float64 of"),
        (lambda v: v.split(0.5, 0.5, by=[0.5] * 24), "texts"),
        (lambda v: v.split(0.5, 0.5, by=[None] * 24), "got object of shape"),
        (lambda v: v.split(0.5, 0.5, by=[0] * 24), "a group for each part; got 1 groups"),
        (lambda v: v.split(0.5, 0.6, by=range(24)), "sum to at most 1"),
        (lambda v: v.split(20, 5, by=range(24)), "sum to at most 24; got"),
        (lambda v: v.split(0.5, 0.5, by=range(24), gap=1), "`gap` must be 0 with `by`"),
        (lambda v: v.split(0.5, 0.5, by=range(24), axis=0), None),
        (lambda v: v.split(0.5, 0.5, by=range(24), axis=1), "one of the sample axes"),
        (lambda v: v[[3, 3, 4]].split(0.5, 0.5, by=[0, 1, 1]), "one row lies at several positions"),
        (lambda v: v.windows(13).split(0.5, 0.5, by=range(24)), "they would hold"),
        (
            lambda v: ooc.zip(v.windows(3), v[1:].windows(2)).split(0.5, 0.5, by=range(24)),
            "at several positions|as many rows each",
        ),
        (lambda v: v.split_at(5, coordinate=range(24), axis=1), "one of the sample axes"),
        (lambda v: v.split(0.5, 0.5, by=v.batches(4)), "`by` must be an array.*got Loader"),
    ],
)
def test_wrong_splits(call: Any, message: str | None):
    view = ooc.open(ARRAY)
    if message is None:
        call(view)
        return
    with pytest.raises(ArgumentError, match=message):
        call(view)


# In a file ---------------------------------------------------------------------------------------


def saved_and_loaded(path: Path, dataset: ooc.Dataset, parts: Any, again: ooc.Dataset) -> Any:
    ooc.save_split(path, dataset, parts)
    return ooc.load_split(path, again)


@pytest.mark.parametrize("kind", KINDS)
def test_a_split_is_saved_and_read_again(tmp_path: Path, kind: str):
    np.save(tmp_path / "a.npy", ARRAY)
    np.save(tmp_path / "b.npy", ARRAY)  # the same numbers elsewhere
    dataset, again = (KINDS[kind](ooc.open(tmp_path / name)) for name in ("a.npy", "b.npy"))
    parts = {
        "range": dataset.split(0.5, 0.5),
        "by": list(dataset.split(0.5, 0.5, by=np.arange(ROWS) // 8 % 2)),
        "one": dataset[::2],
    }
    loaded = saved_and_loaded(tmp_path / "split.json", dataset, parts, again)
    assert list(loaded) == ["range", "by", "one"]
    assert type(loaded["by"]) is list
    trees = [tree | {"by": tuple(tree["by"])} for tree in (parts, loaded)]
    for part, other in zip(*map(leaves, trees), strict=True):
        assert type(part) is type(other)
        assert len(part) == len(other)
        for one, two in zip(
            leaves(part.take(np.arange(len(part)))), leaves(other.take(np.arange(len(part)))),
            strict=True,
        ):  # fmt: skip
            assert_array_equal(one, two)


def test_folds_of_several_axes_are_saved(tmp_path: Path):
    runs = ooc.open(RUNS, axis=(0, 1))
    folds = runs.windows(2).folds(2, axis=1)
    parts = (*runs.windows(2).split(0.5, 0.5), *folds)
    loaded = saved_and_loaded(tmp_path / "s.json", runs.windows(2), parts, runs.windows(2))
    assert loaded[0].sample_shape == (2, 10)
    assert_array_equal(loaded[2][1].take([0, 5]), folds[0][1].take([0, 5]))


def test_a_split_of_a_million_rows_is_small(tmp_path: Path):
    view = ooc.open(np.zeros(10**6, "u1"))
    ooc.save_split(tmp_path / "range.json", view, view.split(0.8, 0.2))
    assert (tmp_path / "range.json").stat().st_size < 1000
    ooc.save_split(tmp_path / "any.json", view, view.split(0.8, 0.2, stratify=np.zeros(10**6, int)))
    assert (tmp_path / "any.json").stat().st_size < 1.4e6


def test_other_data_are_refused(tmp_path: Path):
    view, path = ooc.open(ARRAY), tmp_path / "split.json"
    ooc.save_split(path, view, view.split(0.5, 0.5))
    for other, message in [
        (ooc.open(ARRAY[:-1]), "`rows` was 0:24:1, and is 0:23:1"),
        (ooc.open(ARRAY + 1), "`source.content` differs"),
        (ooc.open(ARRAY).astype("f4"), "`elements` was"),
        (ooc.open(ARRAY).windows(2), "`elements` was"),
        (ooc.open(ARRAY, axis=1), "differs|was"),
    ]:
        with pytest.raises(RestoreError, match=message):
            ooc.load_split(path, other)
    with pytest.raises(ArgumentError, match="must not be there yet"):
        ooc.save_split(path, view, view.split(0.5, 0.5))
    with pytest.raises(ArgumentError, match=r"`parts\.0\.source` is not in it"):
        ooc.save_split(tmp_path / "no.json", view, ooc.open(ARRAY).split(0.5, 0.5))
    with pytest.raises(ArgumentError, match=r"`parts\.0\.fn` is not in it"):
        ooc.save_split(tmp_path / "no.json", view, view.map(np.abs).split(0.5, 0.5))
    with pytest.raises(ArgumentError, match="datasets in tuples"):
        ooc.save_split(tmp_path / "no.json", view, {"train": np.arange(3)})
    with pytest.raises(MissingFileError):
        ooc.load_split(tmp_path / "no.json", view)
    with pytest.raises(SourceError, match=r"must be readable; .*Is a directory"):
        ooc.load_split(tmp_path, view)
    with pytest.raises(SourceError, match=r"must be writable; .*No such file"):
        ooc.save_split(tmp_path / "none" / "split.json", view, view.split(0.5, 0.5))
    assert sorted(one.name for one in tmp_path.iterdir()) == ["split.json"]


def test_damaged_files_are_refused(tmp_path: Path):
    view, path = ooc.open(ARRAY), tmp_path / "split.json"
    ooc.save_split(path, view, (view[5:],))
    text = path.read_text()
    for wrong in (text[:-5], "[]", "{}", text.replace('"split"', '"loader"'), "\0", "é"):
        path.write_text(wrong)
        with pytest.raises(DescriptionError, match=r"what oocdata\.save_split writes"):
            ooc.load_split(path, view)
    for wrong in (json.loads(text) | {"of": [["rows", "x"]]}, json.loads(text) | {"parts": "x"}):
        path.write_text(json.dumps(wrong))
        with pytest.raises(DescriptionError, match=r"what oocdata\.save_split writes"):
            ooc.load_split(path, view)
    path.write_text("[" * 100_000)
    with pytest.raises(DescriptionError, match=r"what oocdata\.save_split writes"):
        ooc.load_split(path, view)
    for value in (7, None, {"a": 1}, 0.5):
        found = json.loads(text)
        found["of"]["elements"] = value
        path.write_text(json.dumps(found))
        with pytest.raises(RestoreError, match="`elements` was"):
            ooc.load_split(path, view)
    for rows in ([5, 25, 1], [-1, 3, 1], "x"):
        found = json.loads(text)
        found["parts"][0]["rows"] = {"range": rows}
        path.write_text(json.dumps(found))
        with pytest.raises(DescriptionError):
            ooc.load_split(path, view)


@pytest.mark.parametrize("kind", KINDS)
def test_files_that_were_edited_are_refused(tmp_path: Path, kind: str):
    """Else rows of one member of a zip would go together with other rows, or a part be empty."""
    dataset, path = KINDS[kind](ooc.open(ARRAY)), tmp_path / "split.json"
    ooc.save_split(path, dataset, dataset.split(0.5, 0.5))
    text = path.read_text()
    path.write_text(json.dumps(json.loads(text), indent=2))  # the same, laid out for people
    ooc.load_split(path, dataset)
    numbers = re.finditer(r"(?<=[ \[])\d+(?=[,\]}])", text[text.index('"digest"') :])
    places = [text.index('"digest"') + found.start() for found in numbers]
    assert places
    for place in places:
        for digit in {"1", "9"} - {text[place]}:
            path.write_text(text[:place] + digit + text[place + 1 :])
            with pytest.raises(DescriptionError, match="its parts were changed"):
                ooc.load_split(path, dataset)


def test_the_error_mentions_a_gap_only_if_there_is_one() -> None:
    rows = ooc.open(np.arange(10))
    with pytest.raises(ArgumentError, match="at most 10; got"):
        rows.split(8, 3)
    with pytest.raises(ArgumentError, match=r"at most 8 \(10 less 2 dropped"):
        rows.split(6, 3, gap=2)


@pytest.mark.parametrize("axis", [1, None])
def test_a_split_of_long_windows_takes_no_memory_for_each_row_of_each(axis: int | None) -> None:
    windows = ooc.open(np.zeros((10, 2000)), axis=(0, 1)).windows(100)
    groups = None if axis else np.arange(20_000) // 2000
    tracemalloc.start()
    parts = windows.split(0.5, 0.5, axis=axis, by=groups)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert [len(part) for part in parts] == ([9010, 9010] if axis else [9505, 9505])
    assert peak < 8 * len(windows) * 10


@pytest.mark.parametrize("argument", ["by", "stratify"])
def test_ids_of_elements_instead_of_rows(argument: str) -> None:
    """A label for each patch or window: the error says how to choose those that share rows."""
    rows = ooc.open(np.zeros((1, 9, 9)))
    patches = ooc.zip(rows.patches((3, 3), step=1), ooc.open(np.zeros(1))[np.zeros(49, int)])
    for elements in (patches, ooc.open(np.arange(60)).windows(12)):
        with pytest.raises(ArgumentError, match=r"rows; got 49\. .*by \.filter\(mask\)"):
            elements.split(0.5, 0.5, **{argument: np.arange(49)})
    with pytest.raises(ArgumentError, match=r"the 60 rows; got 9\.$"):
        ooc.open(np.arange(60)).windows(12).split(0.5, 0.5, **{argument: np.arange(9)})


def test_rows_without_a_group_are_refused(tmp_path: Path) -> None:
    """Test codes of categories, where -1 is missing: such rows are no group of their own."""
    path = write_anndata(tmp_path, rows=40)  # its codes are -1, 0, 1, 2, …
    counts, types = ooc.open(path, "X"), ooc.open(path, "obs/cell_type")
    known = np.asarray(types) >= 0
    for split in (
        lambda: counts.split(0.5, 0.5, by=types),
        lambda: counts.folds(2, by=types),
        lambda: counts.split(0.5, 0.5, by=types, stratify=np.zeros(40, int)),
    ):
        with pytest.raises(ArgumentError, match=r"`by` must .* row 0 .*code -1.*\.filter"):
            split()
    train, val = counts.filter(known).split(0.5, 0.5, by=types.filter(known))
    assert len(train) + len(val) == known.sum() == 30
    # As a class, missing ones are dealt out; as plain numbers, -1 is a group like others.
    assert [len(part) for part in counts.split(0.5, 0.5, stratify=types)] == [20, 20]
    assert sum(map(len, counts.split(0.5, 0.5, by=np.asarray(types)))) == 40
