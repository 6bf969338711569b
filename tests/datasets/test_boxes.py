"""Test sample axes, windows, patches and transposed axes, with NumPy as the oracle."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal
from recording import RecordingSource

import oocdata as ooc
from oocdata.blocks import ADDRESSABLE, Blocks, BlockTable
from oocdata.datasets.dataset import Draw
from oocdata.errors import ArgumentError
from oocdata.testing import sample_array

SHAPE = (4, 10, 6, 5)
ARRAY = sample_array(SHAPE, "<i4")


def rows_of(array: np.ndarray, axes: tuple[int, ...]) -> np.ndarray:
    """Return the rows in C order of the sample axes, by NumPy alone."""
    moved = np.moveaxis(array, axes, range(len(axes)))
    return moved.reshape(-1, *moved.shape[len(axes) :])


# Sample axes -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "axis", [0, -1, (0,), (0, 1), (1, 0), (0, 3), (2, 0, 1), (3, 2, 1, 0)], ids=str
)
def test_rows_are_numbered_in_c_order_of_the_sample_axes(axis: Any):
    axes = tuple(at % 4 for at in (axis if isinstance(axis, tuple) else (axis,)))
    view = ooc.open(ARRAY, axis=axis)
    expected = rows_of(ARRAY, axes)
    assert view.shape == expected.shape
    assert view.sample_shape == tuple(SHAPE[at] for at in axes)
    assert_array_equal(np.asarray(view), expected)
    assert_array_equal(view[len(view) - 1], expected[-1])
    assert_array_equal(np.asarray(view[::-3]), expected[::-3])
    assert_array_equal(view.take([-1, 0, -1]), expected[[-1, 0, -1]])


@pytest.mark.parametrize(
    ("axis", "message"),
    [
        (4, "must be an axis of the 4-dimensional array.*; got 4"),
        ((0, 0), r"each sample axis once; got \(0, 0\)"),
        ((0, -4), "each sample axis once"),
        ((), "at least one sample axis"),
        ("time", "no dimension names; got 'time'"),
        ((0, "time"), "no dimension names"),
        (1.5, "must be an axis"),
        (True, "must be an axis"),
    ],
    ids=str,
)
def test_missing_axes(axis: Any, message: str):
    with pytest.raises(ArgumentError, match=message):
        ooc.open(ARRAY, axis=axis)


def test_transposed_rows_are_written_once():
    source = RecordingSource(ARRAY)
    view = ooc.open(source).transpose(2, 0, 1)
    assert_array_equal(np.asarray(view), ARRAY.transpose(0, 3, 1, 2))
    assert len(source.reads) == 1
    assert_array_equal(np.asarray(view.transpose()), ARRAY.transpose(0, 2, 1, 3))
    for wrong in [(0, 1), (0, 1, 1), (0, 1, 3)]:
        with pytest.raises(ArgumentError, match="the 3 axes of an element, each once"):
            view.transpose(*wrong)


# Windows -----------------------------------------------------------------------------------------


def test_a_window_is_one_box():
    source = RecordingSource(ARRAY)
    view = ooc.open(source, axis=(0, 1))
    x = view.windows(4, stride=2).take([3, 9])
    assert source.reads == [[[0, 3, 0, 0], [2, 1, 0, 0]]]
    assert source.extents[0].lengths == (1, 4, 6, 5)
    assert source.extents[0].strides == (1, 2, 1, 1)
    assert_array_equal(x[1], ARRAY[2, 1:8:2])


def test_given_episodes_are_cut_by_the_outer_axes_too():
    view = ooc.open(ARRAY, axis=(0, 1))
    assert len(view.windows(3)) == 4 * 8
    assert len(view.windows(3, episodes=[10, 5, 5, 20])) == 8 + 3 + 3 + 8 + 8
    assert len(view[5:].windows(3)) == 3 + 3 * 8


# Splits ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("axis", [None, 0, 1], ids=str)
def test_splits_of_several_sample_axes(axis: int | None):
    view = ooc.open(ARRAY, axis=(0, 1))
    first, second = view.split(0.5, 0.5, axis=axis)
    expected = np.split(ARRAY, 2, axis=axis or 0)
    for part, array in zip((first, second), expected, strict=True):
        assert_array_equal(np.asarray(part), rows_of(array, (0, 1)))
        assert part.sample_shape == array.shape[:2]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda v: v.split(0.5, 0.5, axis=2), r"one of the sample axes \(0, 1\); got 2"),
        (lambda v: v.split(0.5, 0.5, axis=9), "must be an axis of the 4-dimensional"),
        (lambda v: v[3:].split(0.5, 0.5, axis=1), "Split first, then select"),
        (lambda v: v[::-1].split(0.5, 0.5, axis=0), "Split first, then select"),
        (lambda v: v[3:].folds(2, axis=0), "Split first, then select"),
        (lambda v: v.windows(1, episodes=[20, 20]).split(0.5, 0.5, axis=0), "one sample axis"),
        (lambda v: ooc.concat(v, v).split(0.5, 0.5, axis=0), "one sample axis"),
        (lambda v: v[3:].enumerate().split(0.5, 0.5, axis=0), "one sample axis"),
        (
            lambda v: v.windows(1).split(0.5, 0.5, axis=1)[0].split(0.5, 0.5, axis=1),
            "into all parts at once",
        ),
        (lambda v: v.split(3, 2), "sum to at most 4"),
        (lambda v: ooc.zip(v, v).split(0.5, 0.5, axis=2), "one of the sample axes"),
    ],
)
def test_wrong_splits(call: Any, message: str):
    with pytest.raises(ArgumentError, match=message):
        call(ooc.open(ARRAY, axis=(0, 1)))


@pytest.mark.parametrize("pad", [False, True])
@pytest.mark.parametrize("shift", [1, 2, 3])
def test_parts_along_time_keep_the_places_of_windows(shift: int, pad: bool):
    """Test that a part of shifted windows has only windows of the whole dataset."""
    windows = ooc.open(np.arange(40).reshape(4, 10), axis=(0, 1)).windows(2, shift=shift, pad=pad)
    starts = set(windows.rows(np.arange(len(windows)))[:, 0].tolist())
    first, second = windows.split(5, 5, axis=1)
    for part, low in ((first, 0), (second, 5)):
        batch = part.take(np.arange(len(part)))
        rows = batch[0] if pad else batch
        last = 9 if pad and low else low + 3  # padded at the end of an episode alone
        assert set(rows[:, 0].tolist()) == {at for at in starts if low <= at % 10 <= last}


@pytest.mark.parametrize("kind", ["unlike lengths", "unlike shifts", "padded", "lagged"])
def test_zips_keep_their_pairs_along_time(kind: str):
    """Test zipped windows that are equally many in the whole, but not in parts of the rows."""
    rows = np.arange(80).reshape(4, 20)
    view, other = ooc.open(rows, axis=(0, 1)), ooc.open(1000 + rows, axis=(0, 1))
    zipped: Any = {
        "unlike lengths": ooc.zip(view.windows(3, shift=6), other.windows(7, shift=6)),
        "unlike shifts": ooc.zip(view.windows(7, shift=2), other.windows(1, shift=3)),
        "padded": ooc.zip(view.windows((-1, 2), pad=True, mask=False), other),
        "lagged": ooc.zip(view.windows((-3,), pad=True, mask=False), other),
    }[kind]
    left, right = zipped.split(0.5, 0.5)
    assert (len(left), len(right)) == (len(zipped) // 2,) * 2
    elements = [np.concatenate([*map(np.ravel, zipped[at])]) for at in range(len(zipped))]
    parts = zipped.split(8, 10, gap=2, axis=1)
    for part, times in zip(parts, (range(8), range(10, 20)), strict=True):
        inside = [rows for rows in elements if np.isin(rows % 20, times).all()]
        found = [np.concatenate([*map(np.ravel, part[at])]) for at in range(len(part))]
        assert inside
        assert_array_equal(found, inside)


def test_views_with_axes_in_another_order_are_split_the_same():
    """Test zipped arrays whose sample axes have different numbers in storage."""
    rows = np.arange(40).reshape(4, 10)
    both = ooc.zip(ooc.open(rows, axis=(0, 1)), ooc.open(rows.T.copy(), axis=(1, 0)))
    for axis, expected in ((0, rows[:2]), (1, rows[:, :5])):
        first, _ = both.split(0.5, 0.5, axis=axis)
        for array in first.take(np.arange(len(first))):
            assert_array_equal(array, expected.ravel())


def test_zip_needs_the_same_sample_axes():
    view = ooc.open(ARRAY, axis=(0, 1))
    with pytest.raises(ArgumentError, match=r"same sample axes; got \(4, 10\) and \(10, 4\)"):
        ooc.zip(view, ooc.open(ARRAY, axis=(1, 0)))
    with pytest.raises(ArgumentError, match=r"same sample axes; got \(4, 6\) and \(4, 10\)"):
        ooc.zip(view, ooc.open(ARRAY, axis=(0, 2)))
    with pytest.raises(ArgumentError, match="one length"):
        ooc.zip(view, view.next_frame())
    flat = ooc.open(np.arange(40))
    assert ooc.zip(view, flat)[7][1] == 7
    first, second = ooc.zip(view, view.astype("f4")).split(0.25, 0.75)
    assert (len(first), len(second)) == (10, 30)
    assert_array_equal(second[0][0], ARRAY[1, 0])


def test_rows_of_another_part_can_not_be_selected():
    train, _ = ooc.open(np.arange(100)).split(0.5, 0.5)
    with pytest.raises(ooc.errors.PositionError, match=r"within \[-50, 50\)"):
        train[np.array([60])]
    assert not hasattr(train, "select")


# Patches -----------------------------------------------------------------------------------------


def test_a_grid_of_patches_equals_numpy():
    view = ooc.open(ARRAY, axis=(0, 1))
    tiles = view.patches((2, 3), step=(2, 2))
    rows = rows_of(ARRAY, (0, 1))
    expected = [row[y : y + 2, x : x + 3] for row in rows for y in (0, 2, 4) for x in (0, 2)]
    assert len(tiles) == len(expected)
    assert_array_equal(tiles.take(np.arange(len(tiles))), np.stack(expected))
    assert tiles.spec.shape == (2, 3)
    assert len(view.patches(2)) == 40 * 2
    assert_array_equal(view.patches(4, axes=[0])[0], rows[0][:4])


def test_zipped_patches_of_unlike_rows():
    """Random patches would be of unrelated places; so would equally many ones in two grids."""
    shapes = [(5, 8, 8), (5, 4, 16), (5, 16, 16)]
    image, narrow, large = (ooc.open(np.zeros(shape)) for shape in shapes)
    for other, size in ((narrow, 4), (large, 4), (large, 8)):
        with pytest.raises(ArgumentError, match="same places"):
            ooc.zip(image.patches((4, 4), per_row=2), other.patches((size, size), per_row=2))
    with pytest.raises(ArgumentError, match="same places"):
        ooc.zip(image.patches((4, 4)), narrow.patches((4, 4)))
    twice = np.arange(16).repeat(2)
    both = ooc.zip(  # the same parts of an image and of a larger one
        ooc.open(np.arange(16)[None] * np.ones((5, 16, 1), int)).patches((4, 4)),
        ooc.open(twice[None] * np.ones((5, 32, 1), int)).patches((8, 8)),
    )
    for small, double in (both[at] for at in range(len(both))):
        assert_array_equal(double[::2, ::2], small)
    colours = ooc.open(np.zeros((5, 8, 8, 3))).patches((4, 4), per_row=2, axes=(0, 1))
    assert len(ooc.zip(image.patches((2, 2), per_row=2), colours)) == 10


@given(st.data())
def test_random_patches_are_a_function_of_seed_epoch_and_position(data: st.DataObject):
    per_row = data.draw(st.integers(1, 5))
    source = RecordingSource(ARRAY)
    patches = ooc.open(source, axis=(0, 1)).patches((2, 3), per_row=per_row)
    assert len(patches) == 40 * per_row
    positions = np.array(data.draw(st.lists(st.integers(0, len(patches) - 1), min_size=1)))
    draw = Draw(data.draw(st.integers(-5, 5)), data.draw(st.integers(0, 3)))
    together = patches.read(positions, draw)
    one_by_one = [patches.read(positions[[at]], draw)[0] for at in range(len(positions))]
    assert_array_equal(together, np.stack(one_by_one))
    places = patches.places(positions, draw)
    rows = rows_of(ARRAY, (0, 1))
    for position, (y, x), patch in zip(positions, places, together, strict=True):
        assert_array_equal(patch, rows[position // per_row][y : y + 2, x : x + 3])
    assert all(extent.lengths == (1, 1, 2, 3) for extent in source.extents)


def test_random_places_are_uniform():
    patches = ooc.open(np.zeros((20_000, 8))).patches(5, per_row=1)
    places = patches.places(np.arange(20_000), Draw(3, 1))[:, 0]
    counts = np.bincount(places, minlength=4)
    assert len(counts) == 4
    assert abs(counts - 5000).max() < 250  # 4 standard deviations
    other = patches.places(np.arange(20_000), Draw(3, 2))[:, 0]
    assert 0.2 < (places == other).mean() < 0.3


@pytest.mark.parametrize("length", [2**32 + 3, 2**33, 2**41])
def test_random_places_along_an_axis_of_more_than_32_bits(length: int):
    rows = ooc.open(np.broadcast_to(np.uint8(0), (20, length)))
    places = rows.patches(4, per_row=1000).places(np.arange(20_000), Draw(3, 1))[:, 0]
    assert places.min() >= 0
    assert places.max() <= length - 4
    quarters = np.histogram(places, 4, (0, length))[0]
    assert np.abs(quarters - 5000).max() < 250


def test_zipped_and_windowed_arrays_get_the_same_crop():
    view = ooc.open(ARRAY, axis=(0, 1))
    pairs = ooc.zip(view, view[:, ::-1, ::-1]).patches((2, 2), per_row=3)
    left, right = pairs.read(np.arange(30), Draw(1, 2))
    rows = rows_of(ARRAY, (0, 1))[np.arange(30) // 3]
    places = pairs.places(np.arange(30), Draw(1, 2))
    for (y, x), a, b, row in zip(places, left, right, rows, strict=True):
        assert_array_equal(a, row[y : y + 2, x : x + 2])
        assert_array_equal(b, row[::-1, ::-1][y : y + 2, x : x + 2])
    x, y = view.windows(3, 1).patches((3, 3), per_row=2).read(np.array([5, 4]), Draw())
    assert x.shape == (2, 3, 3, 3)
    assert y.shape == (2, 1, 3, 3)
    at = view.windows(3, 1).patches((3, 3), per_row=2).places(np.array([5]), Draw())[0]
    assert_array_equal(x[0], ARRAY[0, 2:5, at[0] : at[0] + 3, at[1] : at[1] + 3])
    assert_array_equal(y[0], ARRAY[0, 5:6, at[0] : at[0] + 3, at[1] : at[1] + 3])


def test_pictures_with_channels_last_and_their_masks_get_the_same_crop():
    y, x = np.mgrid[:9, :7]
    masks = np.arange(5)[:, None, None] * 100 + y * 10 + x
    pair = ooc.zip(ooc.open(np.stack([masks, -masks, masks], -1)), ooc.open(masks))
    for crops in (pair.patches((4, 3), per_row=2, axes=(0, 1)), pair.patches((4, 3), axes=(0, 1))):
        for image, mask in crops.batches(3, shuffle=True, seed=1):
            assert_array_equal(image, np.stack([mask, -mask, mask], -1))
            assert mask.shape[1:] == (4, 3)
            assert_array_equal(
                mask - mask[:, :1, :1], np.broadcast_to(masks[0, :4, :3], mask.shape)
            )
    rows = ooc.open(masks)
    series = ooc.windows((rows, 3), (rows, (3,)), time_axis=False)  # (3, 9, 7) and (9, 7)
    frames, frame = series.patches((4, 3), axes=(0, 1)).batches(3).batch(0)
    assert_array_equal(frames[:, 2] + 100, frame)


@pytest.mark.filterwarnings("ignore:windows cross gaps")
def test_patches_of_transposed_rows_and_of_chosen_windows():
    view = ooc.open(ARRAY, axis=(0, 1)).transpose(1, 0)
    tiles = view.patches((5, 2), step=(1, 4))
    assert_array_equal(tiles[1], ARRAY[0, 0].T[:, 4:6])
    chosen = ooc.open(ARRAY, axis=1)[[3, 1, 2]].windows(2).patches((4, 2, 2), step=9)
    assert_array_equal(chosen[0], rows_of(ARRAY, (1,))[[3, 1], :4, :2, :2])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda v: v.patches(7, axes=(0,)), r"got \(7,\) where axes \(0,\) have \(\d,\)\.$"),
        (lambda v: v.patches((7, 3)), r"`size` must fit into an element; got \(7, 3\) .*\)\.$"),
        (lambda v: v.patches((1, 1, 1)), "an element, which has 2; got 3 numbers"),
        (lambda v: v.patches((1, 1, 1), axes=(0, 1, 1)), r"different axes .*`axes`=\(0, 1, 1\)"),
        (lambda v: v.patches((2, 2), axes=(0, 0)), "different axes"),
        (lambda v: v.patches((2, 2), axes=(0, 5)), "different axes"),
        (lambda v: v.patches((2, 2), axes=("y", "x")), r"different axes .*`axes`=\('y', 'x'\)"),
        (lambda v: v.patches(2, axes=1), "different axes .*`axes`=1"),
        (lambda v: v.patches((2, 2), step=1, per_row=2), "must not both be given"),
        (lambda v: v.patches((2, 2), step=(1, 1, 1)), "a number for each axis"),
        (lambda v: v.patches(()), "a number for each axis"),
        (lambda v: v.patches(0), "`size` must be a whole number of at least 1"),
        (lambda v: v.patches(2, per_row=0), "`per_row` must"),
        (lambda v: v.patches(2, per_row=2**62), r"`per_row` must be a whole number from 1 to"),
        (lambda v: ooc.zip(v, v[:, :4]).patches(2, axes=[0]), "alike in all arrays"),
        (lambda v: ooc.zip(v, ooc.stack([v] * 3)).patches(2), r"`axes`, such as \(0, 1\) where"),
        (lambda v: ooc.stack([v] * 2).patches((5, 5)), r"have \(., 2\). Give `axes`, such"),
        (lambda v: v[[3, 1]].windows(2).patches((1, 2, 2)), "axes of the element, which has 2"),
        (lambda v: v.map(abs).patches(2), "before a function is mapped"),
        (lambda v: v.patches(2)[3:].split(0.5, 0.5), "Split first, then select"),
    ],
)
def test_wrong_patches(call: Any, message: str):
    with pytest.raises(ArgumentError, match=message):
        call(ooc.open(ARRAY, axis=(0, 1)))


def test_patches_of_one_element_are_in_one_part_of_a_split():
    patches = ooc.open(np.arange(60).reshape(10, 6)).patches(2, per_row=4)
    parts = patches.split(0.5, 0.3, 0.2)
    assert [len(part) for part in parts] == [20, 12, 8]
    rows = [set((part.take(np.arange(len(part))) // 6).ravel()) for part in parts]
    assert rows == [set(range(5)), {5, 6, 7}, {8, 9}]
    of_patches = ooc.open(np.arange(40).reshape(5, 8)).patches(4, step=2).patches(2)
    one, other = (part.take(np.arange(len(part))) // 8 for part in of_patches.split(0.5, 0.5))
    assert not set(one.ravel()) & set(other.ravel())
    pairs = ooc.open(np.zeros((4, 10, 6)), axis=(0, 1)).windows(2).patches(2, per_row=2)
    assert [len(part) for part in pairs.split(0.5, 0.5, axis=1)] == [4 * 4 * 2] * 2


# Blocks ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("chunks", "axis", "blocks"),
    [
        (None, (0, 1), ADDRESSABLE),
        ((1, 1, 6, 5), (0, 1), ADDRESSABLE),
        ((1, 5, 6, 5), (0, 1), Blocks(5, 5)),
        ((1, 10, 6, 5), (0, 1), Blocks(10, 10)),
        ((2, 10, 3, 3), (0, 1), Blocks(20, 20)),
        ((3, 1, 6, 5), 0, Blocks(3, 3)),
    ],
    ids=str,
)
def test_blocks_of_several_sample_axes(chunks: Any, axis: Any, blocks: Blocks):
    view = ooc.open(RecordingSource(ARRAY, chunks), axis=axis)
    assert view.blocks == blocks
    if blocks != ADDRESSABLE:
        _check_blocks(view, view.chunk_ids(np.arange(len(view))))


def _check_blocks(view: ooc.View, ids: np.ndarray) -> None:
    """Check that blocks and chunks correspond one to one."""
    blocks = view.blocks
    assert isinstance(blocks, Blocks)
    block_of = blocks.of(np.arange(len(view)))
    for chunk in np.unique(ids):
        assert len(np.unique(block_of[ids == chunk])) == 1
    assert len(np.unique(block_of)) == len(np.unique(ids))


def _block_numbers(dataset: Any) -> Any:
    """Number of the block of each element, which a table has."""
    assert isinstance(dataset.blocks, BlockTable)
    return dataset.blocks.of(np.arange(len(dataset)))


@pytest.mark.parametrize(
    ("chunks", "axis"), [((2, 4, 6, 5), (0, 1)), ((1, 4, 6, 5), (1, 0)), ((3, 9, 2, 2), (0, 1))]
)
def test_chunks_that_cut_an_inner_sample_axis_are_blocks_of_their_own(chunks: Any, axis: Any):
    """Test that a block is not the chunks across an axis, which may exceed the memory."""
    view = ooc.open(RecordingSource(ARRAY, chunks), axis=axis)
    ids = view.chunk_ids(np.arange(len(view)))
    assert_array_equal(_block_numbers(view), np.unique(ids, return_inverse=True)[1])


@given(st.data())
def test_blocks_hold_whole_chunks(data: st.DataObject):
    chunks = tuple(data.draw(st.integers(1, length)) for length in SHAPE)
    axes = data.draw(st.sampled_from([(0,), (1,), (0, 1), (1, 0)]))
    view = ooc.open(RecordingSource(ARRAY, chunks), axis=axes)
    if data.draw(st.booleans()):
        view = view.split(0.5, 0.5, axis=data.draw(st.sampled_from(axes)) if axes[1:] else None)[1]
    ids = view.chunk_ids(np.asarray(view.rows))
    if isinstance(view.blocks, BlockTable):
        assert_array_equal(_block_numbers(view), np.unique(ids, return_inverse=True)[1])
    elif view.blocks != ADDRESSABLE:
        _check_blocks(view, ids)


def test_irregular_selections_list_the_chunk_of_each_row():
    view = ooc.open(RecordingSource(ARRAY, (1, 4, 6, 5)), axis=(0, 1))
    chosen = view[[39, 0, 1, 12, 38]]
    assert _block_numbers(chosen).tolist() == [2, 0, 0, 1, 2]
    windows = view.windows(2)[[0, 9, 3, 0]]
    assert _block_numbers(windows).tolist() == [0, 1, 0, 0]
    begins = np.unique(np.add.outer(range(0, 36, 9), [0, 4, 8, 9]))
    runs = view.windows(2).blocks
    assert isinstance(runs, BlockTable)
    assert_array_equal(runs.begins, begins)
    runs = view.windows(2).patches((2, 2), per_row=3).blocks
    assert isinstance(runs, BlockTable)
    assert_array_equal(runs.begins, begins * 3)


def test_blocks_are_those_of_the_part_with_the_longest_chunks():
    short, long = (
        ooc.open(RecordingSource(ARRAY, chunks), axis=(0, 1))
        for chunks in ((1, 3, 6, 5), (1, 7, 6, 5))
    )
    for pair in (ooc.zip(short, long), ooc.zip(long, short), ooc.windows(short, long)):
        assert pair.blocks.number(len(pair)) == long.blocks.number(len(long)) == 8


def test_methods_of_other_libraries_name_the_equivalent():
    view = ooc.open(ARRAY)
    for name in ("shuffle", "batch", "repeat", "prefetch"):
        with pytest.raises(AttributeError, match=r"oocdata's own is \.batches"):
            getattr(view, name)
    pairs = ooc.zip(view, view)  # `fit` takes its shape, because np.asarray accepts it
    for name in ("shape", "skip", "to_keras", "to_tf"):
        with pytest.raises(AttributeError, match=rf"a Zip has no `{name}`; .*oocdata's own|`fit`"):
            getattr(pairs, name)
    for made in (pairs, pairs.map(abs), view.windows(2), view.patches(2)):
        for name in ("windows", "next_frame", "astype"):
            with pytest.raises(AttributeError, match=rf"has no `{name}`; a View has it\. .*Views "):
                getattr(made, name)
    for name in ("map", "repeat", "prefetch", "shape", "shuffle"):
        with pytest.raises(AttributeError, match=rf"a Loader has no `{name}`; "):
            getattr(view.batches(2), name)
    with pytest.raises(AttributeError, match="'Loader' object has no attribute 'nothing'"):
        view.batches(2).nothing  # type: ignore[attr-defined]  # noqa: B018


@pytest.mark.parametrize("mapped", [False, True])
def test_zipped_patches_of_one_element_are_in_one_part_of_a_split(mapped: bool):
    view = ooc.open(np.arange(30).reshape(5, 6))
    patches: ooc.Dataset = view.patches(2, per_row=3)
    patches = patches.map(lambda x: x) if mapped else patches
    parts = ooc.zip(patches, patches, ooc.open(np.arange(15))).split(0.5, 0.5, gap=1)
    rows = [set((part.take(np.arange(len(part)))[0] // 6).ravel()) for part in parts]
    assert rows == [{0, 1}, {3, 4}]
    first, second = patches.split(0.5, 0.5)[0].split(1, 1)
    assert set(first.take([0, 1, 2]).ravel() // 6) == {0}
    assert set(second.take([0, 1, 2]).ravel() // 6) == {1}


@pytest.mark.parametrize("start", [0, 15, 16, 24])
@pytest.mark.parametrize("irregular", [False, True])
def test_blocks_of_later_patches_are_those_of_their_chunks(start: int, irregular: bool):
    rows = np.roll(np.arange(40), 3) if irregular else slice(None)
    view = ooc.open(RecordingSource(sample_array((40, 6)), 8))[rows]
    patches = view.patches(2, per_row=3)[start:]
    origins = patches.requests(np.arange(len(patches)), Draw())[0].origins[:, 0]
    of_blocks = patches.blocks.of(np.arange(len(patches)))
    for chunk in np.unique(origins // 8):
        assert len(np.unique(of_blocks[origins // 8 == chunk])) == 1
    assert len(np.unique(of_blocks)) == len(np.unique(origins // 8))
