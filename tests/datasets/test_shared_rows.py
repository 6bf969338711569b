"""Test that parts share no row, even if a dataset reads an array in two ways."""

from __future__ import annotations

import sys
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from numpy.testing import assert_array_equal
from PIL import Image

import oocdata as ooc
from oocdata.errors import ArgumentError

ROWS = 24


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder of arrays. Row i has values from 1000 i, or from 1000 i + 100 in `v`."""
    whole = 1000 * np.arange(ROWS)
    np.save(tmp_path / "u.npy", whole)
    np.save(tmp_path / "v.npy", whole + 100)
    np.save(tmp_path / "wide.npy", whole[:, None] + np.arange(4))
    fields = np.zeros(ROWS, [("a", "i8"), ("b", "i8")])
    fields["a"], fields["b"] = whole, whole + 1
    np.save(tmp_path / "fields.npy", fields)
    cells = whole[:, None] + np.arange(1, 5)
    with h5py.File(tmp_path / "cells.h5ad", "w") as file:
        group = file.create_group("X")
        group.attrs.update({"encoding-type": "csr_matrix", "shape": cells.shape})
        group["data"], group["indices"] = cells.ravel(), np.tile(np.arange(4), ROWS)
        group["indptr"] = np.arange(0, cells.size + 1, 4)
    for number, part in enumerate(np.split(whole, 3)):
        np.save(tmp_path / f"part{number}.npy", part)
    return tmp_path


def rows_of(part: Any) -> set[int]:
    """Return the rows in all elements of a part; rows of `v` have other numbers."""
    found: set[int] = set()
    for position in range(len(part)):
        element = part[position]
        for array in element if isinstance(element, tuple) else (element,):
            found |= set((np.ravel(array) // 100).tolist())
    return found


def check(parts: Any) -> None:
    """Compare the rows of two parts."""
    first, second = map(rows_of, parts)
    assert first
    assert second
    assert not first & second


def two_fields(view: ooc.View) -> tuple[ooc.View, ooc.View]:
    return view["a"][:-1], view["b"][1:]


PAIRS: dict[str, Callable[[Path], Any]] = {
    "a stack and what it is made of": lambda folder: (
        ooc.stack([ooc.open(folder / "u.npy"), ooc.open(folder / "v.npy")])[:-1],
        ooc.open(folder / "u.npy")[1:],
    ),
    "two stacks of one array": lambda folder: (
        ooc.stack([ooc.open(folder / "u.npy"), ooc.open(folder / "v.npy")])[:-1],
        ooc.stack([ooc.open(folder / "v.npy")[1:]]),
    ),
    "a stack of chosen rows": lambda folder: (
        ooc.stack([ooc.open(folder / "u.npy")[2:], ooc.open(folder / "v.npy")[:-2]]),
        ooc.open(folder / "v.npy")[1:-1],
    ),
    "a stack of rows that lie apart": lambda folder: (
        ooc.stack([ooc.open(folder / "u.npy")[:-2], ooc.open(folder / "u.npy")[2:]]),
        ooc.open(folder / "v.npy")[2:],
    ),
    "two fields": lambda folder: two_fields(ooc.open(folder / "fields.npy")),
    "two fields in memory": lambda folder: two_fields(ooc.open(np.load(folder / "fields.npy"))),
    "columns of sparse rows": lambda folder: (
        ooc.open(folder / "cells.h5ad", "X")[:-1, [2, 0]],
        ooc.open(folder / "cells.h5ad", "X")[1:],
    ),
    "two columns": lambda folder: (
        ooc.open(folder / "wide.npy")[:-1, 0],
        ooc.open(folder / "wide.npy")[1:, 1:],
    ),
    "two dtypes": lambda folder: (
        ooc.open(folder / "u.npy")[:-2].astype("f8"),
        ooc.open(folder / "u.npy")[2:],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", PAIRS)
@pytest.mark.parametrize("how", ["zip", "windows", "map"])
def test_zips_of_one_array_at_different_rows(folder: Path, name: str, how: str) -> None:
    one, other = PAIRS[name](folder)
    if how == "windows":
        one, other = one.windows(2), other.windows(2)
    if how == "map":
        one = one.map(np.negative).map(np.negative)
    parts = ooc.zip(one, other).split(0.5, 0.5)
    check(parts)


@pytest.mark.parametrize("name", PAIRS)
def test_joins_of_one_array_at_different_rows(folder: Path, name: str) -> None:
    one, other = PAIRS[name](folder)
    ids = np.arange(len(one))
    check(ooc.join(one, other, on=(ids, ids)).split(0.5, 0.5))


def test_arrays_that_are_read_in_two_ways(folder: Path) -> None:
    twice = ooc.open([folder / f"part{at}.npy" for at in (0, 1, 0, 2)])
    files, one = ooc.open(folder / "part*.npy"), ooc.open(folder / "part1.npy")
    few = ooc.open([folder / f"part{number}.npy" for number in (0, 1)])
    array = np.arange(48).reshape(6, 8)
    views = [ooc.open(array, axis=axes)[np.arange(48)] for axes in ((0, 1), (1, 0))]
    for made in (
        twice, twice.windows(2, episodes="none"), ooc.zip(twice, twice), twice.map(np.negative),
        ooc.zip(files[8:15], one[1:]), ooc.zip(few[1:], files[:15]), ooc.zip(*views),
    ):  # fmt: skip
        with pytest.raises(ArgumentError, match="read in the same way"):
            made.split(0.5, 0.5)
    with pytest.raises(ArgumentError, match="read in the same way"):
        twice.split(0.5, 0.5, by=np.arange(32) // 8)


def test_stacks_of_one_array_at_different_rows(folder: Path) -> None:
    u = ooc.open(folder / "u.npy")
    lagged = ooc.stack([u[:-3], u[3:]])
    for made in (lagged, lagged.windows(2, 1), lagged.map(np.negative).map(np.negative)):
        check(made.split(0.5, 0.5))
        check(made.split_at(10, coordinate=np.arange(ROWS - 3)))
    for training, validation in lagged.folds(3):
        assert not rows_of(training) & rows_of(validation)
    with pytest.raises(ArgumentError, match="share no row"):
        lagged.split(0.5, 0.5, by=np.arange(ROWS - 3) // 4)


@pytest.mark.parametrize("how", ["zip", "enumerate", "cache", "map", "stack"])
def test_repeated_rows(folder: Path, how: str) -> None:
    """Test a split after oversampling a rare class."""
    rare = ooc.open(folder / "u.npy")[np.arange(3 * ROWS) // 3]
    made: Any = {
        "zip": ooc.zip(rare, ooc.open(-100_000 - 1000 * np.arange(3 * ROWS))),
        "enumerate": rare.enumerate().map(lambda at, row: row),
        "cache": rare.cache(),
        "map": ooc.zip(rare.map(np.abs), rare),
        "stack": ooc.stack([rare, ooc.open(1000 * (ROWS + np.arange(3 * ROWS)))]),
    }[how]
    parts = made.split(0.4, 0.6)
    check(parts)
    assert sum(map(len, parts)) == 3 * ROWS - 2
    check(made.split(0.5, 0.5, by=np.arange(3 * ROWS) // 6))
    with pytest.raises(ArgumentError, match="share no row with another part"):
        made.split(0.5, 0.5, by=np.arange(3 * ROWS) % 2)


@pytest.mark.filterwarnings("ignore:windows cross gaps")
@pytest.mark.parametrize("pad", [False, True])
@pytest.mark.parametrize("inputs", [1, 2, (-1, 0)])
def test_windows_of_repeated_rows(folder: Path, inputs: Any, pad: bool) -> None:
    for last in (6, 8):
        rows = ooc.open(folder / "u.npy")[[0, 1, 0, *range(1, last)]]
        windows, ids = rows.windows(inputs, pad=pad, mask=False), np.arange(last + 2)
        check(windows.split(0.5, 0.5))
        check(windows.split(0.5, 0.5, by=ids // 4))
        with pytest.raises(ArgumentError, match="share no row with another part"):
            windows.split(0.5, 0.5, by=ids // 2 % 2)


def test_one_array_in_memory(folder: Path) -> None:
    array = np.load(folder / "u.npy")
    pairs = ooc.zip(ooc.open(array)[:-1], ooc.open(array)[1:])
    check(pairs.split(0.5, 0.5))


def test_several_sample_axes(folder: Path) -> None:
    np.save(folder / "runs.npy", 1000 * np.arange(ROWS).reshape(6, 4))
    runs = ooc.open(folder / "runs.npy", axis=(0, 1))
    first, second = map(rows_of, ooc.stack([runs, runs]).split(0.5, 0.5))
    assert (first, second) == (set(range(0, 120, 10)), set(range(120, 240, 10)))
    early, late = runs.split(4, 2)[0], runs.split(2, 4)[1]
    for made in (ooc.zip(early, late), ooc.stack([early, late])):
        with pytest.raises(ArgumentError, match="one row lies at several positions"):
            made.split(2, 2)


def test_windows_of_views_of_one_array(folder: Path) -> None:
    u, v = ooc.open(folder / "u.npy"), ooc.open(folder / "v.npy")
    for other in (ooc.stack([u, v])[:-1], ooc.open(folder / "u.npy")[:-1], ooc.stack([v, u])[:-1]):
        lagged = ooc.windows((u[1:], 2), (other, 2), shift=1)
        check(lagged.split(0.5, 0.5))
        check(lagged.split(0.5, 0.5, gap=3))
        with pytest.raises(ArgumentError, match="share no row with another part"):
            lagged.folds(2)
    parts = ooc.windows((u, 2), (ooc.stack([u, v]), 2), shift=1).split(0.5, 0.5)
    check(parts)


def test_concats_that_read_one_array(folder: Path) -> None:
    u, v, wide = (ooc.open(folder / name) for name in ("u.npy", "v.npy", "wide.npy"))
    whole, part = ooc.open(folder / "part*.npy"), ooc.open(folder / "part1.npy")
    for alike in (
        [ooc.stack([u, v]), ooc.stack([v, u])],
        [ooc.stack([u, u]), ooc.stack([v, u])],
        [wide[:, 0], wide[:, 1]],
        [ooc.open(folder / "fields.npy")[name] for name in "ab"],
    ):
        made = ooc.concat(alike)
        for pair in (made, made[::-1], made.cache()):
            check(pair.split(0.5, 0.5))
        check(made.split(0.5, 0.5, by=np.tile(np.arange(ROWS) // 5, 2)))
        with pytest.raises(ArgumentError, match="share no row with another part"):
            made.split(0.5, 0.5, by=np.arange(2 * ROWS) // ROWS)
    for alike in ([whole, part], [part, whole.astype("i8")]):
        with pytest.raises(ArgumentError, match="read in the same way"):
            ooc.concat(alike).split(0.5, 0.5)
    assert len(ooc.concat([whole, u]).split(0.5, 0.5)) == 2


def test_zips_of_concats_of_one_array(folder: Path) -> None:
    """Test that positions refer to the whole, also for selected elements and patches."""
    u, wide = ooc.open(folder / "u.npy"), ooc.open(folder / "wide.npy")
    check(ooc.zip(ooc.concat([wide[:, 0], u]), ooc.concat([u, wide[:, 1]])).split(0.5, 0.5))
    few, many = (
        ooc.open(np.tile(1000 * first + 1000 * np.arange(n)[:, None], 4))
        for first, n in ((100, 12), (200, 24))
    )
    pieces = ooc.concat([wide[:12], few])
    for made in (pieces, pieces[::-1]):
        check(ooc.zip(made.patches((2,)), ooc.concat([many, wide])).split(0.5, 0.5))


def test_zips_of_unlike_arrays_are_split_without_their_rows() -> None:
    """Test the memory: the rows of 10⁹ windows would take 8 GB."""
    one, other = (ooc.open(np.broadcast_to(np.float32(0), (10**9,))) for _ in range(2))
    tracemalloc.start()
    try:
        parts = ooc.zip(one.windows(4), other.windows(4)).split(0.5, 0.5)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()
    assert [len(part) for part in parts] == [5 * 10**8 - 3] * 2


@pytest.mark.parametrize("axes", [1, 2])
def test_stacks_are_split_without_a_list_of_rows(axes: int) -> None:
    """Test the memory: the numbers of 10⁹ rows would take 8 GB."""
    shape = (10**9, 3) if axes == 1 else (10**6, 10**3, 3)
    view = ooc.open(np.broadcast_to(np.float32(0), shape), axis=tuple(range(axes)))
    stack = ooc.stack([view[..., 0], view[..., 2]])
    made: Any = stack.windows(4) if axes == 1 else stack
    tracemalloc.start()
    try:
        parts = made.split(0.5, 0.5)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()
    assert [len(part) for part in parts] == [len(made) // 2 - (1 if axes == 1 else 0)] * 2


def test_concats_of_one_array_are_split_without_a_list_of_rows() -> None:
    """Test the memory: the numbers of 10⁹ rows would take 8 GB, three times."""
    view = ooc.open(np.broadcast_to(np.float32(0), (10**9,)))
    parts = [view, view[5:], view.windows(2).map(lambda x: x[:, 0])]
    tracemalloc.start()
    try:
        made = ooc.concat(parts)
        halves = made.split(0.5, 0.5)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()
    # The last window of row i is at position 2 · 10⁹ - 5 + i.
    assert sum(map(len, halves)) == len(made) - (2 * 10**9 - 5)


def test_concats_of_many_datasets_of_one_array_compare_no_pairs() -> None:
    """Test the calls: 600 runs of rows are 180,000 pairs, which took seconds."""
    view = ooc.open(np.arange(20_000))
    pairs = [ooc.zip(view[at : at + 40], view[at + 1 : at + 41]) for at in range(0, 12_000, 40)]
    for each in (pairs, [pair[np.arange(40)[::-1]] for pair in pairs]):
        made, calls = ooc.concat(each), 0

        def count(frame: Any, event: str, argument: Any) -> None:
            nonlocal calls
            calls += event == "call"

        sys.setprofile(count)
        try:
            parts = made.split(0.5, 0.5)
        finally:
            sys.setprofile(None)
        assert calls < 300 * len(each)
        check([part.map(lambda *rows: tuple(row * 100 for row in rows)) for part in parts])


@pytest.mark.parametrize(("rows", "episodes", "each"), [(10**5, 50, 250), (10**9, None, 1e-3)])
def test_windows_of_one_array_are_split_without_a_list_of_rows(
    rows: int, episodes: int | None, each: float
) -> None:
    """Test the memory: the rows of windows of 16 would take 128 bytes per element."""
    view = ooc.open(np.broadcast_to(np.float32(0), (rows,)))
    windows = view.windows(16, episodes=episodes and [episodes] * (rows // episodes))
    both = ooc.zip(windows[1:], windows[:-1])
    tracemalloc.start()
    try:
        parts = both.split(0.5, 0.5)
        assert tracemalloc.get_traced_memory()[1] < each * len(both)
    finally:
        tracemalloc.stop()
    assert sum(map(len, parts)) == len(both) - 16


def test_single_rows_zipped_with_windows_of_the_same_array() -> None:
    view = ooc.open(np.arange(60))
    windows, groups = view.windows(4)[::4][:13], np.arange(60) // 4
    own = ooc.zip(windows, view[3::4][:13]).split(0.5, 0.5, by=groups)
    rows = [set(np.ravel(part.take(np.arange(len(part)))[0])) for part in own]
    assert not rows[0] & rows[1]
    with pytest.raises(ArgumentError, match="share no row with another part"):
        ooc.zip(windows, view[5::4][:13]).split(0.5, 0.5, by=groups)
    with pytest.raises(ArgumentError, match="share no row with another part"):
        ooc.zip(windows, view[5::4][:13]).folds(3)
    # Only splits that share rows are refused: here both rows of an element are in one run.
    place, runs = np.arange(60) % 20, np.arange(60) // 20
    pairs = ooc.zip(view[place < 15], view[place > 4])
    for parts in ([pairs.split(15, 30, by=runs[place < 15])], pairs.folds(3, by=runs[place < 15])):
        for one, other in parts:
            rows = [set(np.ravel(part.take(np.arange(len(part))))) for part in (one, other)]
            assert not rows[0] & rows[1]


def test_an_array_read_in_two_ways_is_split_by_trajectories(tmp_path: Path) -> None:
    values = np.arange(6 * 10 * 3).reshape(6, 10, 3)
    np.save(tmp_path / "a.npy", values)
    runs = ooc.open(tmp_path / "a.npy", axis=(0, 1))
    before = ooc.zip(runs, runs.windows(inputs=(-1, 0), pad=True))
    for part, trajectories in zip(before.split(0.5, 0.5), (range(3), range(3, 6)), strict=True):
        now, (both, _) = part.take(np.arange(len(part)))
        assert_array_equal(now, values[trajectories].reshape(-1, 3))
        lagged = np.maximum(np.arange(10) - 1, 0)
        assert_array_equal(both[:, 0], values[trajectories][:, lagged].reshape(-1, 3))
    first, second = runs.split(0.5, 0.5)
    sizes = [len(part) for part in ooc.zip(first, second).split(1 / 3, 2 / 3)]
    assert sizes == [10, 20]
    again = ooc.zip(runs[:30], second)  # rows along one axis adopt two sample axes
    assert [len(part) for part in again.split(1, 2)] == [10, 20]
    with pytest.raises(ArgumentError, match="one row lies at several positions"):
        ooc.zip(runs[::-1], runs).split(0.5, 0.5)


def pictures_of(folder: Path, numbers: list[int]) -> ooc.View:
    """Return pictures of one pixel, whose value is the number of their file."""
    for number in set(numbers):
        Image.fromarray(np.full((1, 1), number, "u1")).save(folder / f"{number}.png")
    return ooc.open([str(folder / f"{number}.png") for number in numbers])


def files_of(part: Any) -> set[int]:
    return {int(np.ravel(leaf)[0]) for at in range(len(part)) for leaf in leaves_of(part[at])}


def leaves_of(element: Any) -> tuple[Any, ...]:
    return element if isinstance(element, tuple) else (element,)


PICTURES = {
    "a picture for each caption": [0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3],
    "a table in any order": [3, 1, 8, 2, 0, 5, 8, 7, 6, 4, 9, 10],
}


@pytest.mark.parametrize("numbers", PICTURES.values(), ids=PICTURES)
@pytest.mark.parametrize("share", [0.3, 0.5, 0.6])
def test_a_picture_listed_twice_is_in_one_part(tmp_path: Path, numbers: list[int], share: float):
    """Test lists of paths from a table, in which a file comes back."""
    view = pictures_of(tmp_path, numbers)
    pairs = ooc.zip(view, ooc.open(np.arange(12)[:, None] + 100))
    for dataset in (view, pairs, view.next_frame()):
        first, second = dataset.split(share, 1 - share)
        assert not (files_of(first) & files_of(second)) - {*range(100, 112)}
    first, second = pairs.split(share, 1 - share, by=numbers)
    assert len(first) + len(second) == 12
    with pytest.raises(ArgumentError, match="share no row with another part"):
        pairs.split(0.5, 0.5, stratify=np.arange(12) % 2, seed=3)


def test_pairs_of_pictures_from_two_lists(tmp_path: Path):
    """Test a picture in both lists, and images beside masks, whose files are all others."""
    left, right = [0, 1, 2, 3, 4, 5], [1, 2, 3, 4, 5, 0]
    pairs = ooc.zip(pictures_of(tmp_path, left[:5]), pictures_of(tmp_path, right[:5]))
    first, second = pairs.split(0.5, 0.5)
    assert len(first) + len(second) == 4
    assert not files_of(first) & files_of(second)
    masks = pictures_of(tmp_path, [number + 100 for number in left])
    halves = ooc.zip(pictures_of(tmp_path, left), masks).split(0.5, 0.5)
    assert [len(half) for half in halves] == [3, 3]


def test_files_as_rows_beside_the_rows_of_files(tmp_path: Path):
    """A row that is a file has the rows of that file, whose numbers are others."""
    for number in range(6):
        np.save(tmp_path / f"{number}.npy", np.zeros((6, 2)))
    volumes, rows = (ooc.open(str(tmp_path / "*.npy"), axis=axis) for axis in (None, 0))
    with pytest.raises(ArgumentError, match="must be read in the same way"):
        ooc.zip(volumes[:5], rows[6::6]).split(0.5, 0.5)
    train, val = ooc.zip(volumes[:5], volumes[1:]).split(0.5, 0.5)
    assert (len(train), len(val)) == (2, 2)


def test_ragged_rows_beside_other_rows_of_the_same_values(tmp_path: Path):
    for number in range(6):
        np.save(tmp_path / f"{number}.npy", np.full((4, 2), number))
    view = ooc.open(str(tmp_path / "*.npy"))
    one, other = (ooc.ragged(view, lengths=view.parts.lengths) for _ in range(2))
    masks = ooc.ragged(np.arange(24), lengths=[4] * 6)
    for pairs in (
        ooc.zip(view[4::4], one[:-1]),
        ooc.zip(view[4::4], one.pad()[:-1]),
        ooc.zip(one.pad()[1:], other.pad()[:-1]),
    ):
        with pytest.raises(ArgumentError, match="must be read in the same way"):
            pairs.split(0.5, 0.5)
    for pairs in (ooc.zip(one, masks), ooc.zip(one.pad(), one.pad(2, cut=True))):
        train, val = pairs.split(0.5, 0.5)
        assert (len(train), len(val)) == (3, 3)
    train, val = ooc.zip(one.pad()[1:], one.pad()[:-1]).split(0.5, 0.5)
    assert (len(train), len(val)) == (2, 2)


def test_ragged_rows_of_several_arrays_by_the_same_offsets(tmp_path: Path):
    np.save(tmp_path / "offsets.npy", np.array([0, 2, 3, 7, 9]))
    offsets = ooc.open(tmp_path / "offsets.npy")
    x, y = (ooc.ragged(np.arange(9) + more, offsets) for more in (0, 9))
    train, val = ooc.zip(x, y).split(0.5, 0.5)
    assert (len(train), len(val)) == (2, 2)
