"""Test that splits of random compositions share no row, by reading and comparing elements.

Each value of an array is the number of its row, so the values of an element tell its rows.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import oocdata as ooc
from oocdata.datasets.dataset import Dataset
from oocdata.datasets.shared_rows import StoredRows, sharing_distance
from oocdata.datasets.spec import leaves
from oocdata.errors import ArgumentError, EmptyError

FIRST = 1000
"""First row number, above the positions of `enumerate`."""

ARRAYS = [
    np.repeat(np.arange(first, first + np.prod(shape)).reshape(*shape, 1), 2, axis=-1)
    for first, shape in [(FIRST, (23,)), (2 * FIRST, (4, 7)), (3 * FIRST, (12,))]
]

WHOLE = st.integers(0, 3)
OFFSETS = st.lists(st.integers(-3, 3), min_size=1, max_size=3, unique=True).map(sorted).map(tuple)


@st.composite
def views(draw: st.DrawFn) -> ooc.View:
    array = draw(st.sampled_from(ARRAYS))
    axes = st.sampled_from([0, (0, 1), (1, 0), 1]) if array.ndim > 2 else st.just(0)
    view = ooc.open(array, axis=draw(axes))
    unique = draw(st.booleans())
    some = st.lists(st.integers(0, len(view) - 1), min_size=3, max_size=30, unique=unique)
    slices = st.sampled_from([slice(None), slice(None), slice(1, None), slice(None, None, -2)])
    return view[draw(slices | some | some.map(sorted))]


@st.composite
def windows(draw: st.DrawFn) -> Dataset:
    view, several = draw(views()), draw(st.booleans())
    option: dict[str, Any] = {
        "shift": draw(st.sampled_from([1, 1, 2, 3])),
        "pad": draw(st.booleans()),
    }
    if len(view.sample_shape) == 1 and draw(st.booleans()):
        option["episodes"] = [2, len(view) - 2]
    if several:
        return ooc.windows((view, draw(OFFSETS)), (view[:, :1], draw(OFFSETS)), **option)
    return view.windows(draw(OFFSETS), draw(OFFSETS | st.just(0)), **option)


def alike(draw: st.DrawFn, parts: list[Dataset]) -> list[Dataset]:
    """Cut datasets to one length, each at a random position; keep axes if lengths are equal."""
    if len({part.sample_shape for part in parts}) == 1 and draw(st.booleans()):
        return parts
    most = min(map(len, parts))
    length = max(2, most - draw(WHOLE))
    starts = [draw(st.integers(0, max(0, len(part) - length))) for part in parts]
    return [part[at : at + length] for at, part in zip(starts, parts, strict=True)]


@st.composite
def zips(draw: st.DrawFn, of: st.SearchStrategy[Dataset]) -> Dataset:
    one = draw(of)
    lag, twice = draw(WHOLE), draw(st.booleans())
    parts = [one[lag:], one[: len(one) - lag]] if twice else alike(draw, [one, draw(of)])
    return ooc.zip(dict(enumerate(parts))) if draw(st.booleans()) else ooc.zip(*parts)


@st.composite
def joins(draw: st.DrawFn, of: st.SearchStrategy[Dataset]) -> Dataset:
    one, other = draw(of), draw(SINGLE)
    ids = draw(st.lists(st.integers(0, len(other)), min_size=len(one), max_size=len(one)))
    return ooc.join(one, other, on=(ids, np.arange(len(other))), how="previous")


@st.composite
def others(draw: st.DrawFn, of: st.SearchStrategy[Dataset]) -> Dataset:
    one, how = draw(of), draw(st.sampled_from(["patches", "enumerate", "cache", "stack", "concat"]))
    if how == "patches":
        return one.patches(1, per_row=2, axes=(-1,))
    if how == "stack":
        pair = alike(draw, [draw(views()), draw(views())])
        if any(not isinstance(view, ooc.View) or len(view.axes) > 1 for view in pair):
            return one  # fewer sample axes are repeated along the others
        return ooc.stack(pair)  # type: ignore[arg-type]
    if how == "concat":
        return ooc.concat([one, draw(of)])
    return one.enumerate() if how == "enumerate" else one.cache()


SINGLE = views() | windows() | windows()
PAIRS = zips(SINGLE) | joins(SINGLE) | others(SINGLE)
ANY = zips(SINGLE | PAIRS) | joins(SINGLE | PAIRS) | others(PAIRS)


def rows_of(part: Dataset) -> set[int]:
    batch = part.take(np.arange(len(part)))
    arrays = [array for array in leaves(batch) if array.dtype != np.bool_]
    return {row for array in arrays for row in np.unique(array).tolist() if row >= FIRST}


@pytest.mark.filterwarnings("ignore:windows cross gaps")
@given(st.data())
@settings(max_examples=120)
def test_no_two_parts_share_a_row(data: st.DataObject) -> None:
    try:
        made = data.draw(ANY)
        rows = len(made._row_positions(0)) if len(made) > 1 else 0
    except (ArgumentError, EmptyError):
        return
    if not rows:
        return
    gap = data.draw(st.integers(0, 2), label="gap")
    ids = data.draw(st.lists(st.integers(0, 3), min_size=rows, max_size=rows), label="ids")
    border = data.draw(st.integers(1, rows), label="border")
    axes = (0, 1) if len(made.sample_shape) > 1 else (None,)
    calls: list[Any] = [
        lambda: [made.split(0.5, 0.5, gap=gap, axis=axis) for axis in axes],
        lambda: [made.split(0.5, 0.5, by=ids)],
        lambda: [made.split(0.5, 0.5, stratify=ids)],
        lambda: [made.split_at(border, coordinate=np.arange(rows), gap=gap)],
        lambda: made.folds(2, gap=gap),
        lambda: made.folds(2, by=ids),
    ]
    for call in calls:
        try:
            found = call()
        except (ArgumentError, EmptyError):
            continue
        for parts in found:
            for one, other in itertools.combinations(map(rows_of, parts), 2):
                assert not one & other, (made, call)


NUMBERS = st.lists(st.integers(0, 12), max_size=9).map(lambda some: np.array(some, np.int64)) | (
    st.builds(range, WHOLE, st.integers(3, 12), st.integers(1, 3))
    | st.builds(range, st.integers(6, 12), WHOLE, st.integers(-3, -1))
)
STEPS = st.sets(st.integers(-4, 4), max_size=3).map(lambda some: (0, *sorted(some - {0})))


@given(NUMBERS, NUMBERS, STEPS, STEPS, st.booleans())
def test_sharing_distance(
    one: Any, other: Any, steps: tuple[int, ...], others: tuple[int, ...], in_order: bool
) -> None:
    view = ooc.open(ARRAYS[0])
    places = range(len(other)) if in_order else range(0, 3 * len(other), 3)
    found = sharing_distance([StoredRows(view, one, range(len(one)), steps),
                   StoredRows(view, other, places, others)])  # fmt: skip
    expected = [
        abs(at - places[there])
        for at, row in enumerate(one)
        for there, another in enumerate(other)
        if {row + step for step in steps} & {another + step for step in others}
    ]
    again = [
        [
            abs(at - to)
            for at, row in enumerate(rows)
            for to, same in enumerate(rows)
            if {row + step for step in own} & {same + step for step in own}
        ]
        for rows, own in ((one, steps), (other, others))
    ]  # of rows that are in several elements of one
    again[1:] = [[(1 if in_order else 3) * at for at in some] for some in again[1:]]
    assert found == max([0, *expected, *itertools.chain(*again)])


def test_one_array_along_one_and_along_several_axes() -> None:
    array = ARRAYS[1]
    whole, single = ooc.open(array), ooc.open(array, axis=(0, 1))[3::7]
    with pytest.raises(ArgumentError, match="read in the same way"):
        ooc.zip(whole[1:], single[:-1]).split(1, 1)
    columns = ooc.zip(ooc.open(array[:, :4]), ooc.open(array[:, :4], axis=1))
    assert len(columns.split(0.5, 0.5)) == 2  # two arrays in memory
