"""Test windows of several arrays, padding and episodes, with plain Python as the oracle."""

from __future__ import annotations

import datetime
import itertools
import json
import pickle
import tracemalloc
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from counting import counted
from hypothesis import example, given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal
from recording import RecordingSource
from window_oracle import counted_out

import oocdata as ooc
from oocdata.datasets.episodes import episodes_of
from oocdata.datasets.spec import leaves
from oocdata.describe import as_json, from_json
from oocdata.errors import ArgumentError, EmptyError
from oocdata.memory import DEFAULT_MEMORY, lowered_limit
from oocdata.testing import sample_array
from oocdata.tools import passes

OFFSETS = st.lists(st.integers(-7, 8), min_size=1, max_size=4, unique=True).map(sorted)
LENGTHS = st.lists(st.integers(1, 14), min_size=1, max_size=5)
KINDS = st.sampled_from(["plain", "reversed", "strided", "chosen"])


def view_of(rows: int, kind: str) -> tuple[ooc.View, np.ndarray]:
    """Return a view of rows, and their numbers."""
    array = np.arange(2 * rows) * 10
    key: Any = {
        "plain": slice(rows),
        "reversed": slice(None, rows - 1 if rows else None, -1),
        "strided": slice(1, None, 2),
        "chosen": np.random.default_rng(rows).permutation(2 * rows)[:rows],
    }[kind]
    return ooc.open(array)[key], array[key]


@given(LENGTHS, OFFSETS, OFFSETS, st.integers(1, 4), st.booleans(), KINDS)
def test_any_offsets(lengths: list[int], x: Any, y: Any, shift: int, pad: bool, kind: str) -> None:
    view, numbers = view_of(sum(lengths), kind)
    episodes = lengths
    expected = counted_out([lengths, lengths], [x, y], shift, pad)
    if not expected:
        with pytest.raises(EmptyError, match="a window must fit into the data; the offsets span"):
            view.windows(x, y, shift=shift, episodes=episodes, pad=pad)
        return
    windows = view.windows(x, tuple(y), shift=shift, episodes=episodes, pad=pad)
    assert len(windows) == len(expected)
    got = windows.take(range(len(windows)))
    assert_array_equal(got[0], numbers[[rows[0] for rows, _ in expected]])
    assert_array_equal(got[1], numbers[[rows[1] for rows, _ in expected]])
    assert [leaf.shape for leaf in windows.spec] == [part.shape[1:] for part in got]
    masked = pad and y != [0]
    assert len(got) == 3 if masked else 2
    if masked:
        assert got[2].dtype == bool
        assert_array_equal(got[2], [inside[1] for _, inside in expected])
    places = np.arange(len(windows))[::-2]
    for one, whole in zip(windows[::-2].take(range(len(places))), got, strict=True):
        assert_array_equal(one, whole[places])


@given(st.data(), st.sampled_from([(0, 1), (1, 0)]), st.booleans(), st.integers(1, 3))
def test_of_several_sample_axes(data: Any, axes: Any, pad: bool, shift: int) -> None:
    shape = (4, 9, 2)
    array = sample_array(shape, "<i4")
    x, y = data.draw(OFFSETS), data.draw(OFFSETS)
    view = ooc.open(array, axis=axes)
    rows = np.moveaxis(array, axes, (0, 1)).reshape(36, 2)
    episodes, length = shape[axes[0]], shape[axes[1]]
    expected = counted_out([[length] * episodes] * 2, [x, y], shift, pad)
    if not expected:
        with pytest.raises(EmptyError):
            view.windows(x, y, shift=shift, pad=pad, mask=False)
        return
    windows = view.windows(x, y, shift=shift, pad=pad, mask=False)
    assert windows.sample_shape == view.sample_shape
    for at, part in enumerate(windows.take(range(len(expected)))):
        assert_array_equal(part, rows[[some[at] for some, _ in expected]])


@given(LENGTHS, st.data(), st.integers(1, 3), st.booleans())
def test_several_arrays(lengths: list[int], data: Any, shift: int, pad: bool) -> None:
    longer = [length + 1 for length in lengths]
    s, a = np.arange(sum(longer)) * 2, np.arange(sum(lengths)) * 2 + 1
    given_episodes = {"s": longer, "a": lengths, "next": longer}
    offsets = {name: data.draw(OFFSETS) for name in given_episodes}
    expected = counted_out([longer, lengths, longer], list(offsets.values()), shift, pad)
    views = {"s": ooc.open(s), "a": ooc.open(a), "next": ooc.open(s)}
    asked = {name: (views[name], offsets[name]) for name in views}
    if not expected:
        with pytest.raises(EmptyError, match="the offsets span"):
            ooc.windows(asked, shift=shift, pad=pad, episodes=given_episodes)
        return
    windows = ooc.windows(asked, shift=shift, pad=pad, episodes=given_episodes)
    batch: Any = windows.take(range(len(windows)))
    assert len(windows) == len(expected)
    for at, (name, array) in enumerate({"s": s, "a": a, "next": s}.items()):
        assert_array_equal(batch.pop(name), array[[rows[at] for rows, _ in expected]])
        if pad and offsets[name] != [0]:
            assert_array_equal(batch.pop(f"{name}_mask"), [each[at] for _, each in expected])
    assert batch == {}


def test_past_offsets_are_the_same_windows_wherever_they_are_counted_from() -> None:
    view = ooc.open(np.arange(50))
    one = view.windows((-8, -4, -1, 0), 2, shift=3)
    other = view.windows((0, 4, 7, 8), (9, 10), shift=3)
    assert len(one) == len(other) == 14
    for x, y in zip(one.take(range(14)), other.take(range(14)), strict=True):
        assert_array_equal(x, y)
    x, y = view.windows(range(-6, 1, 3), 2, stride=2, horizon=3)[0]
    assert (x.tolist(), y.tolist()) == ([0, 3, 6], [9, 11])


@pytest.mark.parametrize(
    ("horizon", "x", "y"),
    [(0, [0, 1, 2], [2, 3]), (-2, [0, 1, 2], [0, 1]), (-4, [2, 3, 4], [0, 1])],
)
def test_horizons_below_one(horizon: int, x: Any, y: Any) -> None:
    windows = ooc.open(np.arange(20)).windows(3, 2, horizon=horizon)
    assert [part.tolist() for part in windows[0]] == [x, y]
    assert max(windows[-1][0][-1], windows[-1][1][-1]) == 19
    assert ooc.open(np.arange(9)).next_frame(-2)[0] == (2, 0)


# Reads --------------------------------------------------------------------------------------------


def test_regular_offsets_are_one_box() -> None:
    source = RecordingSource(np.arange(40))
    view = ooc.open(source)
    view.windows((-4, -2, 0)).take([3, 9])
    assert [extent.lengths for extent in source.extents] == [(3,)]
    source.forget()
    view.windows((-4, -1, 0)).take([3, 9])
    assert source.rows == [[3, 6, 7, 9, 12, 13]]
    source.forget()
    padded = view.windows(3, pad=True)
    padded.take([3, 9])  # none crosses the edge
    padded.take([3, 38])
    assert [extent.lengths for extent in source.extents] == [(3,), (1,)]
    assert source.rows[1] == [3, 4, 5, 38, 39, 39]


def test_each_chunk_is_decoded_once_a_batch() -> None:
    array = sample_array((64, 3))
    view, decoded = counted(array, 8, 3)
    windows = view.windows((-9, -3, -1, 0), 16, pad=True)
    x, y, mask = windows.take(np.arange(64))
    assert set(decoded.values()) == {1}
    assert len(decoded) == 8
    assert_array_equal(x[20], array[[11, 17, 19, 20]])
    assert_array_equal(y[60], array[[61, 62, 63] + [63] * 13])
    assert mask.sum() == sum(min(16, 63 - anchor) for anchor in range(64))


@pytest.fixture
def small_memory() -> Iterator[None]:
    ooc.set_memory(4 << 20)
    yield
    ooc.set_memory(DEFAULT_MEMORY)


@pytest.mark.usefixtures("small_memory")
@pytest.mark.parametrize("pad", [False, True])
@pytest.mark.parametrize("many", ["one", "axes", "given", "chosen"])
def test_a_block_shuffle_decodes_each_chunk_about_once(pad: bool, many: str) -> None:
    """Test that each chunk is decoded once with a cache of 2 MiB for 3.3 MB."""
    array = np.arange(12_800, dtype="f4")[:, None] * np.ones(64, "f4")
    if many == "axes":
        view, decoded = counted(array.reshape(64, 200, 64), 1, 32, 64)
        view, chunks = ooc.open(view.source, axis=(0, 1)), 64 * 7
    else:
        (view, decoded), chunks = counted(array, 32, 64), 400
    episodes = np.full(64, 200) if many == "given" else None
    windows = view.windows((-3, -2, 0), (0, 1), pad=pad, mask=False, episodes=episodes)
    if many == "chosen":
        windows = windows[np.random.default_rng(0).permutation(len(windows))]
    for found in (windows, windows[5:][::-1]):
        numbers = np.arange(len(found))
        starts = found.rows(numbers)[:, 3 if pad else 0]  # the anchor, or the first row
        chunk = starts // 200 * 7 + starts % 200 // 32 if many == "axes" else starts // 32
        blocks = found.blocks.of(numbers)
        if many == "chosen":
            assert_array_equal(blocks, chunk)
        else:
            assert_array_equal(np.diff(blocks) != 0, np.diff(chunk) != 0)
    loader = windows.batches(128, shuffle="block", seed=3)
    # 60 chunks at a time, of 256 that the cache holds, and chunks that windows extend into.
    mixed = 60 * loader.order.blocks.number(len(windows)) // chunks
    order = replace(loader.order, blocks_mixed=mixed, lanes=4)
    loader = windows.batches(128, shuffle=order, seed=3)
    anchors = [loader.batch(step)[1][:, 0, 0] for step in range(len(loader))]
    assert len(np.unique(np.concatenate(anchors))) == len(windows)
    assert decoded.total() < 1.25 * chunks


@pytest.mark.parametrize("kind", ["npy", "hdf5", "gzip"])
def test_from_files_over_epochs_and_ranks(tmp_path: Path, kind: str) -> None:
    lengths = [30, 1, 7, 58]
    image, action = sample_array((100, 3, 2), "<f4")[:96], np.arange(96, dtype="<i4")
    if kind == "npy":
        np.save(tmp_path / "image.npy", image)
        np.save(tmp_path / "action.npy", action)
        views = [ooc.open(tmp_path / f"{name}.npy") for name in ("image", "action")]
    else:
        options = {"compression": "gzip", "shuffle": True} if kind == "gzip" else {}
        with h5py.File(tmp_path / "a.h5", "w") as file:
            file.create_dataset("image", data=image, chunks=(9, 2, 1), **options)
            file.create_dataset("action", data=action, chunks=(13,), **options)
        views = [ooc.open(tmp_path / "a.h5", name) for name in ("image", "action")]
    windows = ooc.windows(
        {"image": (views[0], (-3, -1, 0)), "now": views[1], "action": (views[1], 5)},
        episodes=lengths,
        pad=True,
    )
    expected = counted_out([lengths] * 3, [[-3, -1, 0], [0], [0, 1, 2, 3, 4]], 1, pad=True)
    assert len(windows) == 96
    loader = windows.batches(8, shuffle=True, seed=1)
    again = from_json(as_json(loader))
    ranks = [loader.shard(2, rank) for rank in range(2)]
    for epoch in (0, 1):
        seen = []
        for step in range(len(loader)):
            batch: Any = loader.batch(step, epoch)
            parts = [rank.batch(step, epoch) for rank in ranks]
            for name in batch:
                assert_array_equal(np.concatenate([part[name] for part in parts]), batch[name])
                assert_array_equal(again.batch(step, epoch)[name], batch[name])
            for at, number in enumerate(batch["now"].tolist()):
                rows, inside = expected[number]
                assert_array_equal(batch["image"][at], image[rows[0]])
                assert_array_equal(batch["action"][at], action[rows[2]])
                assert_array_equal(batch["image_mask"][at], inside[0])
                assert_array_equal(batch["action_mask"][at], inside[2])
            seen += batch["now"].tolist()
        assert sorted(seen) == list(range(96))


@pytest.mark.parametrize("chunks", [None, 4096])
@pytest.mark.parametrize("pad", [False, True])
def test_a_thousand_million_rows_take_no_memory(chunks: int | None, pad: bool) -> None:
    rows = 10**9
    view = ooc.open(RecordingSource(np.broadcast_to(np.zeros(1, "u1"), (rows,)), chunks))
    for episodes in (None, [rows - 50, 50]):
        tracemalloc.start()
        asked = {"x": (view, (-8, -4, 0)), "y": (view, 16)}
        windows = ooc.windows(asked, episodes=episodes, pad=pad)
        train, val = windows.split(0.5, 0.5)
        loader = train.batches(32, shuffle=True, seed=1)
        loader.batch(len(loader) // 2)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 4 << 20
        assert len(train) + len(val) + 23 == len(windows)
        assert len(windows) == rows - (0 if pad else 23 if episodes is None else 46)
        assert isinstance(loader.order, ooc.BlockShuffle) == (chunks is not None)


# Splits -------------------------------------------------------------------------------------------


def rows_read(windows: ooc.Windows) -> list[set[int]]:
    """Return the rows of each view that a part reads, by the values of its arrays."""
    batch = windows.take(range(len(windows)))
    arrays = [array for array in leaves(batch) if array.dtype != bool]
    return [set(array.ravel().tolist()) for array in arrays]


@given(
    LENGTHS, OFFSETS, OFFSETS, st.integers(1, 3), st.integers(0, 5), st.booleans(),
    st.sampled_from([0, 1]), st.sampled_from([1, 1, 2, -1]),
)  # fmt: skip
@example([10, 10], [5], [5], 1, 0, True, 0, 1)
@example([7, 1, 1, 1, 1, 1], [0], [0, 3], 3, 4, True, 0, 1)
@example([1] * 8, [0, 1], [0], 5, 3, False, 1, 1)
@example([8, 8], [0], [0], 7, 5, False, 0, 1)
@example([8, 8], [0], [0], 7, 5, False, 0, -1)
@example([8, 1, 1, 1, 1, 1, 1, 1, 8, 8], [0], [0], 7, 5, False, 0, 1)
def test_no_two_parts_share_a_row(
    lengths: list[int], x: Any, y: Any, shift: int, gap: int, pad: bool, more: int, step: int
) -> None:
    longer = [length + more for length in lengths]
    views = [ooc.open(np.arange(sum(each)) * 2 + at) for at, each in enumerate((longer, lengths))]
    given_episodes = {"s": longer, "a": lengths}
    try:
        windows = ooc.windows(
            {"s": (views[0], x), "a": (views[1], y)},
            shift=shift, pad=pad, episodes=given_episodes,
        )[::step]  # fmt: skip
        parts = windows.split(0.5, 0.5, gap=gap)
    except EmptyError:
        return
    for one, other in zip(*map(rows_read, parts), strict=True):
        assert not one & other
        low, high = (one, other) if max(one) < min(other) else (other, one)
        assert (min(high) - max(low)) // 2 > gap


def test_no_more_is_dropped_than_needed() -> None:
    view = ooc.open(np.arange(100))
    for windows in (
        view.windows((-8, -4, 0)),
        view.windows((-8, -4, 0), pad=True),
        ooc.windows((view, (-8, 0)), (view, (-4, -1)), pad=True),
    ):
        train, val = windows.split(0.5, 0.5, gap=2)
        assert len(windows) - len(train) - len(val) == 10
        (one, *_), (other, *_) = rows_read(train), rows_read(val)
        assert min(other) - max(one) == 3
    # Rows outside an episode are its last row.
    parts = view.windows((20,), pad=True).split(0.9, 0.1)
    assert sum(map(len, parts)) == 80


@pytest.mark.parametrize("axis", [None, 0, 1])
@pytest.mark.parametrize("pad", [False, True])
def test_split_of_states_and_actions(axis: int | None, pad: bool) -> None:
    states, actions = np.arange(4 * 21).reshape(4, 21), np.arange(4 * 20).reshape(4, 20)
    s, a = ooc.open(states, axis=(0, 1)), ooc.open(actions, axis=(0, 1))
    windows = ooc.windows({"s": s, "a": a, "next": (s, (1,))}, time_axis=False, pad=pad, mask=False)
    parts = windows.split(0.55, 0.45, axis=axis)
    lengths = [(40,), (36,)]  # windows across the border are dropped
    assert [part.sample_shape for part in parts] == (lengths if axis else [(2, 20), (2, 20)])
    seen = []
    for part in parts:
        batch: Any = part.take(range(len(part)))
        trajectory, time = np.divmod(batch["s"], 21)
        assert_array_equal(batch["a"], trajectory * 20 + time)
        assert_array_equal(batch["next"], batch["s"] + 1)
        seen.append(set(batch["s"].tolist()) | set(batch["next"].tolist()))
    assert not seen[0] & seen[1]
    assert states[-1, -1] in seen[1]  # the additional row is not lost


def test_windows_of_other_rows_of_one_array_are_split_apart() -> None:
    view = ooc.open(np.arange(20))
    windows = ooc.windows(view[:-1], view[1:])
    assert windows[3] == (3, 4)
    for made in (windows, ooc.windows(view, (view, (1,)))):
        first, second = made.split(0.5, 0.5)
        assert (len(first), len(second)) == (9, 9)
        assert max(np.concatenate([np.ravel(array) for array in first[8]])) < second[0][0]


# With other datasets ------------------------------------------------------------------------------


def test_patches_of_padded_windows() -> None:
    array = sample_array((12, 6, 5))
    patches = ooc.open(array).windows((-1, 0), 3, pad=True).patches((2, 3), step=2)
    assert [leaf.shape for leaf in patches.spec] == [(2, 2, 3), (3, 2, 3), (3,)]
    x, y, mask = patches.take([0, 7 * 6 + 3, 11 * 6 + 5])
    assert_array_equal(x[0], array[[0, 0], :2, :3])
    assert_array_equal(y[2], array[[11, 11, 11], 4:6, 2:5])
    assert mask.tolist()[0] == [True, True, True]
    assert mask.tolist()[2] == [False, False, False]
    assert len(patches.sources()) == 1
    named = ooc.windows({"x": (ooc.open(array), 2)}, pad=True).patches((6, 5), axes=(1, 2))
    assert named.spec["x_mask"].shape == (2,)
    with pytest.raises(ArgumentError, match="an element, which has 3; got 4"):
        ooc.open(array).windows(2, pad=True).patches((1, 1, 1, 1))
    with pytest.raises(ArgumentError, match="which has 2; got -3"):  # some repeat rows
        ooc.open(array).windows(2, pad=True, mask=False).patches((1, 1, 1))


def test_zip_map_and_sources() -> None:
    images, labels = ooc.open(np.arange(30)), ooc.open(np.arange(30) * 3)
    both = ooc.zip(images.windows((-2, -1, 0), pad=True, mask=False), labels)
    assert [part.tolist() for part in both[1]] == [[0, 0, 1], 3]
    padded = images.windows(4, pad=True)
    assert padded.sources() == [images.source]
    mapped = padded.map(lambda x, mask: x * mask)
    assert mapped[28].tolist() == [28, 29, 0, 0]
    assert pickle.loads(pickle.dumps(padded))[29][1].tolist() == [True, False, False, False]
    explained = str(padded.batches(8).explain())
    assert "(4,) int64 and (4,) bool" in explained
    assert explained.count("from ") == 1


def test_the_mask_is_a_sample_weight() -> None:
    """Test the form (x, y, sample_weight) of `fit`, with a weight for each row of y."""
    view = ooc.open(np.arange(12.0).reshape(6, 2))
    x, y, weight = view.windows(1, 3, pad=True).take([4])
    assert (x.shape, y.shape, weight.shape) == ((1, 1, 2), (1, 3, 2), (1, 3))
    assert weight.tolist() == [[True, False, False]]
    nested = ooc.windows({"a": (view, (-1, 0))}, {"b": (view, 2), "c": view}, pad=True)
    x, y, weight = nested[5]
    assert list(x) == ["a"]
    assert {name: each.tolist() for name, each in weight.items()} == {"b": [True, False], "c": True}


@pytest.mark.parametrize(
    "make",
    [
        lambda v, w: v.windows((-3, -1, 0), (1, 5)),
        lambda v, w: v.windows(3, 2, stride=2, horizon=-4, shift=3),
        lambda v, w: v.windows(2, 3, pad=True, mask=False, episodes=[30, 30]),
        lambda v, w: v.next_frame(0),
        lambda v, w: ooc.windows({"x": (v, 3), "y": (v, (1, 5, 6)), "z": w}, pad=True, shift=2),
        lambda v, w: ooc.windows((v, 2), w, time_axis=False, episodes=[20, 40])[[7, 3, 9, 1, 1]],
        lambda v, w: ooc.windows({"x": {"a": v, "b": (w, 1)}}, time_axis=False)[::-3],
        lambda v, w: ooc.windows((v, range(0, 9, 4))),
    ],
)
def test_descriptions(tmp_path: Path, make: Any) -> None:
    np.save(tmp_path / "v.npy", sample_array((60, 2)))
    np.save(tmp_path / "w.npy", sample_array((60,), "<f4"))
    windows = make(*(ooc.open(tmp_path / f"{name}.npy") for name in "vw"))
    loader = windows.batches(4, shuffle=True)
    again = from_json(json.loads(as_json(loader)))
    assert as_json(again) == as_json(loader)
    assert repr(again.dataset) == repr(windows)
    objects: list[Any] = []  # objects sent to workers
    sent = from_json(as_json(loader, objects=objects), objects=objects)
    for one, other, third in zip(
        leaves(again.batch(1)), leaves(loader.batch(1)), leaves(sent.batch(1)), strict=True
    ):
        assert_array_equal(one, other)
        assert_array_equal(third, other)


def test_repr_and_specs() -> None:
    view = ooc.open(np.zeros((10, 2)))
    assert repr(view.windows((-4, -1, 0), 2)) == "<Windows: 4 elements of 3+2 rows>"
    padded = ooc.windows({"a": view, "b": (view, 4)}, pad=True)
    assert repr(padded) == "<Windows: 10 elements of 1+4 rows, padded>"
    assert list(padded.spec) == ["a", "b", "b_mask"]
    assert ooc.windows(view, (view, 1), time_axis=False).spec[1].shape == (2,)
    assert ooc.windows((view, 1)).spec.shape == (1, 2)
    x, y = view.windows(3, 1, time_axis=False)[4]
    assert_array_equal(x, view.take([4, 5, 6]))
    assert_array_equal(y, view[7])
    assert ooc.windows(view, (view, 2), pad=True)[9][2].tolist() == [True, False]
    assert len(ooc.windows((view, (-1, 0)), view, pad=True).spec) == 2  # y is never padded


V = ooc.open(np.arange(30))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: V.windows((0, 0)), "`inputs` must be offsets that ascend"),
        (lambda: V.windows((1, 0)), "`inputs` must be offsets that ascend"),
        (lambda: V.windows((1, -(2**63))), "`inputs` must be offsets that ascend"),
        (lambda: V.windows(()), "`inputs` must be offsets that ascend"),
        (lambda: V.windows(range(3, 0, -1)), "`inputs` must be offsets that ascend"),
        (lambda: V.windows((0, 1.5)), "`inputs` must be a whole number"),
        (lambda: V.windows((False, True)), "`inputs` must be a whole number"),
        (lambda: V.windows("ab"), "`inputs` must be a whole number"),
        (lambda: V.windows((0, 2**62)), r"between -2\*\*62 and 2\*\*62"),
        (lambda: V.windows(1, 1, horizon=2**62, pad=True), r"between -2\*\*62 and 2\*\*62"),
        (lambda: V.windows(1, (1, 2), horizon=2), "`horizon` must be left out"),
        (lambda: V.windows((0, 1), (2, 5), stride=2), "`stride` and `horizon` must be left out"),
        (lambda: V.windows((0, 1), stride=2), "`stride` and `horizon` must be left out"),
        (lambda: V.windows(2, pad=3), "`pad` must be True or False; got 3"),
        (lambda: V.windows(2, pad=True, mask="x"), "`mask` must be True or False"),
        (lambda: ooc.windows(), "`windows` must get Views"),
        (lambda: ooc.windows({}), "`windows` must get Views"),
        (lambda: ooc.windows((V, 2), np.zeros(30)), "`windows` must get Views"),
        (lambda: ooc.windows(V.next_frame(), V), "`windows` must get Views; got <Windows"),
        (lambda: ooc.windows((V, 0)), "`offsets` must be a whole number of at least 1"),
        (lambda: ooc.windows((V, (1, 0)), V), "`offsets` must be offsets that ascend"),
        (lambda: ooc.windows(V, V[:28]), "those of episode 0 are 30, 28"),
        (
            lambda: ooc.windows(V, ooc.open(np.zeros((5, 5)), axis=(0, 1))),
            "equally many episodes.* got 1, 5",
        ),
        (lambda: ooc.windows({"a": V}, episodes={"b": [30]}), r"names of the arrays, \['a'\]"),
        (lambda: ooc.windows(V, episodes={"b": [30]}), r"names of the arrays, \[\]"),
        (
            lambda: ooc.windows({"a": (V, 2), "a_mask": V}, pad=True),
            "must not get an array with the name of a mask, a_mask",
        ),
    ],
)
def test_wrong_calls(call: Any, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        call()


def test_nothing_to_pad() -> None:
    with pytest.raises(EmptyError):
        V[:0].windows(2, pad=True)
    assert len(V[:1].windows((-9, 9), pad=True)) == 1


# Episodes -----------------------------------------------------------------------------------------


def lengths_of(ends: Any) -> list[int]:
    """Return lengths of episodes, by a loop over the rows."""
    found, length = [], 0
    for end in ends:
        length += 1
        if end:
            found.append(length)
            length = 0
    return found + [length] * (length > 0)


@given(st.lists(st.tuples(st.booleans(), st.booleans()), max_size=40))
def test_episodes_end_with_their_flags(flags: list[tuple[bool, bool]]) -> None:
    terminals, timeouts = np.array(flags, bool).reshape(-1, 2).T
    expected = lengths_of(terminals | timeouts)
    views = ooc.open(RecordingSource(terminals.astype("u1")[:, None])), ooc.open(timeouts)
    assert ooc.episodes(done=views).tolist() == expected
    assert ooc.episodes(done=[terminals.tolist(), timeouts]).tolist() == expected
    assert ooc.episodes(done=terminals | timeouts).tolist() == expected
    found = ooc.episodes(done=(terminals | timeouts).astype("f4").tolist())
    assert (found.dtype, found.tolist()) == (np.int64, expected)
    if flags:
        assert episodes_of(ooc.open(terminals), found).lengths.tolist() == expected


def test_flags_are_read_in_blocks(tmp_path: Path) -> None:
    flags = np.arange(1, 20_000_001, dtype="u1") == 0  # every 256th
    np.save(tmp_path / "done.npy", flags)
    view = ooc.open(tmp_path / "done.npy")
    tracemalloc.start()
    with lowered_limit(16 << 20):
        found = ooc.episodes(done=view)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert_array_equal(found, [256] * (len(flags) // 256))
    assert peak < 10 << 20


@given(st.lists(st.sampled_from([1, 1, 1, 2, 0, -5]), max_size=30), st.sampled_from("ifud"))
def test_episodes_begin_where_time_jumps(steps: list[int], kind: str) -> None:
    ticks = 1000 + np.cumsum([0, *steps])
    ends = [step != 1 for step in steps] + [False]
    time: Any = ticks.astype({"i": "i4", "f": "f8", "u": "u2", "d": "i8"}[kind])
    step: Any = 1
    if kind == "d":
        time, step = time.astype("M8[h]"), np.timedelta64(60, "m")
    elif kind == "f":
        time, step = time * 0.1, 0.1
    assert ooc.episodes(time=time, step=step).tolist() == lengths_of(ends)
    assert ooc.episodes(time=ooc.open(time), step=step).tolist() == lengths_of(ends)


@given(st.lists(st.sampled_from([3, 3, 3, 7, -1]), max_size=30), st.sampled_from(["i1", "f4"]))
def test_episodes_begin_where_ids_change(numbers: list[int], dtype: str) -> None:
    ids = np.array(numbers, dtype)
    expected = [len(list(group)) for _, group in itertools.groupby(numbers)]
    assert ooc.episodes(ids=ids).tolist() == expected
    assert ooc.episodes(ids=ooc.open(ids[:, None])).tolist() == expected
    flags = np.arange(len(numbers)) % 5 == 4
    pairs = zip(numbers, np.cumsum(flags) - flags, strict=True)
    both = [len(list(group)) for _, group in itertools.groupby(pairs)]
    assert ooc.episodes(ids=ids, done=flags).tolist() == both


@given(st.lists(st.sampled_from(["run/v_0", "run/v_0", "walk", "", "é"]), min_size=1, max_size=30))
def test_ids_may_be_texts(texts: list[str]) -> None:
    """Test the name of a video or patient of each row, as HDF5 and lists of paths have them."""
    expected = [len(list(group)) for _, group in itertools.groupby(texts)]
    encoded = [text.encode() for text in texts]
    for ids in (texts, np.array(texts, object), np.array(texts), encoded, np.array(encoded)):
        assert ooc.episodes(ids=ids).tolist() == expected
    for ids in (np.array(texts), np.array(encoded)):
        assert ooc.episodes(ids=ooc.open(ids)).tolist() == expected


@pytest.mark.parametrize("dates", [["NaT", "1970-01-02"], ["1969-12-31", "NaT"], ["NaT"] * 3])
def test_nat_ends_an_episode(dates: list[str]) -> None:
    """Test NaT, the lowest int64, next to which differences wrap around."""
    found = ooc.episodes(time=np.array(dates, "M8[D]"), step=np.timedelta64(1, "D"))
    assert found.tolist() == [1] * len(dates)


def test_borders_of_blocks(monkeypatch: pytest.MonkeyPatch) -> None:

    monkeypatch.setattr(passes, "BLOCK_BYTES", 80)
    time = np.arange(100)
    time[40:] += 5  # blocks of 10 rows: at a border, and within a block
    time[57:] += 1
    assert ooc.episodes(time=time, step=1).tolist() == [40, 17, 43]
    assert ooc.episodes(ids=time - np.arange(100)).tolist() == [40, 17, 43]
    flags = np.zeros(100, "i8")
    flags[[9, 10, 99]] = 1
    assert ooc.episodes(done=flags).tolist() == [10, 1, 89]
    assert ooc.episodes(done=flags, time=time, step=1).tolist() == [10, 1, 29, 17, 43]


def test_tolerance() -> None:
    time = [0.0, 1.0, 2.2, 3.2, np.nan, 5.2, 6.2]
    assert ooc.episodes(time=time, step=1).tolist() == [2, 2, 1, 2]
    assert ooc.episodes(time=time, step=1, tolerance=0.3).tolist() == [4, 1, 2]
    dates = np.array(["2020-01-01T00", "2020-01-01T07", "NaT", "2020-01-02T00"], "M8[h]")
    step, hour = datetime.timedelta(hours=6), np.timedelta64(1, "h")
    assert ooc.episodes(time=dates, step=step).tolist() == [1, 1, 1, 1]
    assert ooc.episodes(time=dates, step=step, tolerance=hour).tolist() == [2, 1, 1]
    assert ooc.episodes(time=[5, 4, 3, 9], step=-1).tolist() == [3, 1]


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({}, "`done`, `ids` or `time` must be given"),
        ({"step": 1}, "`time` must be given with `step`"),
        ({"time": [1, 2]}, "`step` must be a number other than 0, .* got None"),
        ({"time": [1, 2], "step": 0}, "a number other than 0"),
        ({"time": [1, 2], "step": np.nan}, "a number other than 0"),
        ({"time": [1, 2], "step": 1, "tolerance": -1}, "not be negative"),
        ({"time": [1, 2], "step": np.timedelta64(1, "s")}, "`step` must be a number.*decode=True"),
        (
            {"time": [1.0, 2.0], "step": datetime.timedelta(hours=1)},
            "`step` must be a number.*decode=True",
        ),
        ({"time": np.zeros(2, "M8[h]"), "step": 1}, "`step` must be a timedelta64"),
        ({"time": np.zeros(2, "M8[h]"), "step": np.timedelta64(90, "m")}, "whole units of"),
        ({"time": np.zeros(2, "M8[D]"), "step": np.timedelta64(1, "M")}, "whole units of"),
        (
            {"time": np.zeros(2, "M8[D]"), "step": np.array([1]).view("m8")[0]},
            "whole units of",
        ),
        ({"done": np.zeros((4, 2))}, "`done` must have one number for each row"),
        ({"done": ["yes"]}, "`done` must have one number for each row"),
        ({"time": ["2020"], "step": 1}, "`time` must have one number for each row"),
        ({"ids": [1j]}, "`ids` must be numbers or dates .* or texts in one dimension"),
        ({"ids": ooc.open(np.ones(2, "c8"))}, "`ids` must have one number or text for each row"),
        ({"done": [0.0, np.nan]}, "`done` must hold flags; got NaN"),
        ({"done": [np.zeros(4), np.zeros(5)]}, "must have one length; got 4, 5 rows"),
        ({"done": np.zeros(4), "time": [1], "step": 1}, "must have one length; got 4, 1 rows"),
        ({"done": ooc.open(np.zeros(4)).next_frame()}, "one number for each row; got <Windows"),
    ],
)
def test_wrong_episodes(asked: dict[str, Any], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        ooc.episodes(**asked)
