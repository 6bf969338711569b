"""Test windows, with plain loops as the oracle."""

from __future__ import annotations

import warnings
from itertools import pairwise
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal
from recording import RecordingSource
from window_oracle import counted_out

import oocdata as ooc
from oocdata.blocks import Blocks, BlockTable
from oocdata.datasets.dataset import Draw
from oocdata.datasets.episodes import episodes_of, part_episodes
from oocdata.datasets.request import Request
from oocdata.errors import ArgumentError, EmptyError, PositionError
from oocdata.testing import sample_array

ROWS = ooc.open(np.arange(100))


SIZES = st.fixed_dictionaries(
    {
        "inputs": st.integers(1, 5),
        "targets": st.integers(0, 4),
        "shift": st.integers(1, 7),
        "stride": st.integers(1, 4),
        "horizon": st.integers(-6, 5),
    }
)


@given(SIZES, st.lists(st.integers(1, 20), min_size=1, max_size=5), st.booleans())
def test_every_window(sizes: dict[str, int], lengths: list[int], episodic: bool):
    rows = sum(lengths)
    x = [number * sizes["stride"] for number in range(sizes["inputs"])]
    y = [x[-1] + sizes["horizon"] + number * sizes["stride"] for number in range(sizes["targets"])]
    runs = lengths if episodic else [rows]
    offsets = [x, y] if y else [x]
    expected = [
        each for each, _ in counted_out([runs] * len(offsets), offsets, sizes["shift"], pad=False)
    ]
    view = ooc.open(np.arange(rows) * 10)
    if not expected:
        with pytest.raises(EmptyError, match="must fit"):
            view.windows(**sizes, episodes=lengths if episodic else None)
        return
    windows = view.windows(**sizes, episodes=lengths if episodic else None)
    assert len(windows) == len(expected)
    batch: Any = windows.take(range(len(windows)))
    parts = batch if y else (batch,)
    for at, part in enumerate(parts):
        assert_array_equal(part, np.array([each[at] for each in expected]) * 10)
    if y:
        assert [leaf.shape for leaf in windows.spec] == [part.shape[1:] for part in parts]
    one = windows[-1]
    assert_array_equal(one[0] if y else one, parts[0][-1])


@pytest.mark.parametrize(
    ("horizon", "episodes"), [(1, None), (3, None), (2, [40, 60]), (1, [99, 1])]
)
def test_next_frame(horizon: int, episodes: Any):
    pairs = ROWS.next_frame(horizon, episodes)
    runs = episodes or [100]
    expected = counted_out([runs, runs], [[0], [horizon]], 1, pad=False)
    x, y = pairs.take(range(len(pairs)))
    assert_array_equal(x, [x for ((x,), _), _ in expected])
    assert_array_equal(y, [y for (_, (y,)), _ in expected])
    assert [leaf.shape for leaf in pairs.spec] == [(), ()]


def test_repr_and_spec():
    view = ooc.open(np.zeros((10, 2, 3), "f4"))
    assert [str(leaf) for leaf in view.windows(4, 2).spec] == [
        "(4, 2, 3) float32",
        "(2, 2, 3) float32",
    ]
    assert str(view.windows(4).spec) == "(4, 2, 3) float32"
    assert [str(leaf) for leaf in view.next_frame().spec] == ["(2, 3) float32"] * 2
    assert repr(view.windows(4, 2)) == "<Windows: 5 elements of 4+2 rows>"


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ({"inputs": 0}, "inputs"),
        ({"inputs": 1.0}, "inputs"),
        ({"inputs": True}, "inputs"),
        ({"inputs": 1, "targets": -1}, "targets"),
        ({"inputs": 1, "shift": 0}, "shift"),
        ({"inputs": 1, "stride": 0}, "stride"),
        ({"inputs": 1, "horizon": 1.5}, "horizon"),
        ({"inputs": 1, "horizon": 2**64}, "horizon"),
        ({"inputs": 1, "shift": 2**63}, "shift"),
    ],
)
def test_wrong_arguments(arguments: dict[str, Any], name: str):
    with pytest.raises(ArgumentError, match=f"`{name}` must be a whole number"):
        ROWS.windows(**arguments)


@pytest.mark.parametrize(
    "arguments",
    [
        {"inputs": 101},
        {"inputs": 2**62},
        {"inputs": 51, "episodes": [50, 50]},
    ],
)
def test_windows_that_do_not_fit(arguments: dict[str, Any]):
    with pytest.raises(EmptyError, match=r"span \d+ rows, and the longest episode has"):
        ROWS.windows(**arguments)


@pytest.mark.parametrize(
    "arguments",
    [
        {"inputs": 2**62 + 1},
        {"inputs": 2**62, "targets": 2**62, "stride": 2**62, "horizon": 2**62},
        {"inputs": 1, "targets": 1, "horizon": 2**63 - 1},
    ],
)
def test_offsets_beyond_integers(arguments: dict[str, Any]):
    with pytest.raises(ArgumentError, match=r"must be offsets that ascend, .* between"):
        ROWS.windows(**arguments)


def test_steps_beyond_the_data():
    assert len(ROWS.windows(1, shift=2**62)) == 1
    assert ROWS.windows(1, shift=2**62, episodes=[50, 50]).take([0, 1]).tolist() == [[0], [50]]
    assert ROWS.windows(1, stride=2**62).take([99]).tolist() == [[99]]
    assert len(ooc.open(np.arange(1)).windows(1)) == 1
    with pytest.raises(EmptyError):
        ROWS[:0].windows(1)
    for empty in ([], np.zeros(0, int)):
        with pytest.raises(EmptyError):
            ROWS[:0].windows(1, episodes=empty)


@pytest.mark.parametrize(
    ("episodes", "message"),
    [
        ([50, 49], "sum to the 100 rows; got 2 numbers with a sum of 99"),
        ([101, -1], "whole numbers of at least 0"),
        ([2**62, 2**62, 2**62, 2**62, 100], "lengths that sum to"),
        ([50.0, 50.0], "whole numbers of at least 0 in one dimension"),
        ([[50, 50]], "at least 0 in one dimension"),
        ([True] * 100, "at least 0 in one dimension"),
        ([2] + [1] * 49, "got 50 numbers with a sum of 51"),
        (100, "at least 0 in one dimension"),
        ("file", "one of the words 'parts', 'files'"),
        ([[1], [2, 3]], "`episodes` must be an array"),
    ],
)
def test_wrong_episodes(episodes: Any, message: str):
    with pytest.raises(ArgumentError, match=message):
        ROWS.windows(2, episodes=episodes)


def test_episodes_may_be_empty(tmp_path: Path):
    """`parts.lengths` counts 0 rows for demos without a step, and for those left out by `named`."""
    lengths = [4, 0, 7, 3]
    with h5py.File(tmp_path / "demos.h5", "w") as file:
        for number, length in enumerate(lengths):
            file[f"demo_{number}/u"] = 100 * number + np.arange(length)
        rows = [file[f"demo_{number}/u"][:] for number in (0, 1, 3)]
    view = ooc.open(tmp_path / "demos.h5", "demo_*/u").named(["demo_0", "demo_1", "demo_3"])
    assert_array_equal(view.parts.lengths, [4, 0, 0, 3])
    pairs = ooc.open(np.concatenate(rows)).windows(2, 1, episodes=view.parts.lengths)
    seen = [np.concatenate(pair).tolist() for pair in pairs]
    assert seen == [row[at : at + 3].tolist() for row in rows for at in range(len(row) - 2)]


def test_episodes_are_those_of_the_view_not_of_the_file():
    with pytest.raises(ArgumentError, match="the 40 rows; got 2 numbers with a sum of 100"):
        ROWS[10:50].windows(2, episodes=[60, 40])
    assert len(ROWS[40:80].windows(2, episodes=[20, 20])) == 38


def test_episodes_are_not_the_users_array():
    lengths = np.array([50, 50])
    windows = ROWS.windows(2, episodes=lengths)
    lengths[:] = 1
    assert len(windows) == 98
    assert windows.take([49])[0].tolist() == [50, 51]


@pytest.mark.parametrize("lengths", [[2, 1], np.array([2, 1], np.uint64)])
def test_runs(lengths: Any):
    runs = episodes_of(ooc.open(np.arange(3)), lengths)
    assert (runs.starts.tolist(), runs.lengths.tolist()) == ([0, 2], [2, 1])


@given(
    st.lists(st.integers(1, 9), min_size=1, max_size=5),
    st.builds(
        slice, st.integers(-50, 50), st.integers(-50, 50), st.sampled_from([1, 2, 5, -1, -3])
    ),
)
def test_runs_of_parts(lengths: list[int], cut: slice):
    starts = np.cumsum([0, *lengths[:-1]])
    rows = range(sum(lengths))[cut]
    runs = part_episodes(starts.tolist(), rows)
    expected = part_episodes(starts.tolist(), np.array(rows, np.int64))
    if rows:
        assert_array_equal(runs.starts, expected.starts)
        assert_array_equal(runs.lengths, expected.lengths)
    assert int(runs.lengths.sum()) == len(rows)


def test_elements_that_do_not_exist() -> None:
    windows = ROWS.windows(3, 1, episodes=[30, 70])
    for wrong in (len(windows), -len(windows) - 1):
        with pytest.raises(PositionError):
            windows[wrong]
    for wrong in ((1, 2), True, (slice(None), 0)):
        with pytest.raises(ArgumentError):
            windows[wrong]


def rows_of(request: Request) -> np.ndarray:
    """Return the rows along the first axis in each box, shape (boxes, rows of a box)."""
    extent = request.extent
    return request.origins[:, :1] + np.arange(extent.lengths[0]) * extent.strides[0]


def used(windows: ooc.Windows) -> list[set[int]]:
    """Return the view's rows in each element."""
    requests = windows.requests(np.arange(len(windows)), Draw())
    rows = np.concatenate([rows_of(r).reshape(len(windows), -1) for r in requests], axis=1)
    return [set(row) for row in rows.tolist()]


@given(SIZES, st.integers(10, 80), st.integers(0, 12))
def test_no_more_is_dropped_than_needed(sizes: dict[str, int], rows: int, gap: int):
    try:
        windows = ooc.open(np.arange(rows)).windows(**sizes)
        left, right = windows.split(0.5, 0.5, gap=gap)
    except EmptyError:
        return
    dropped = len(windows) - len(left) - len(right)
    if dropped:
        every = used(windows)
        before, after = every[len(left)], set().union(*used(right))
        assert min(after) - max(before) <= gap


def test_a_selection_out_of_order_cannot_be_split():
    with pytest.raises(ArgumentError, match="ascending or descending order"):
        ROWS.windows(2)[[5, 3, 9, 20]].split(0.5, 0.5)
    with pytest.raises(ArgumentError, match="ascending or descending order"):
        ROWS.windows(2)[[3, 3, 9, 20]].split(0.5, 0.5)
    for key in ([3, 5, 9, 20], [20, 9, 5, 3]):
        one, two = (set().union(*used(part)) for part in ROWS.windows(2)[key].split(1, 1))
        assert not one & two


@given(
    st.integers(1, 10),
    st.integers(2, 70),
    st.integers(0, 69),
    st.integers(1, 4),
    st.integers(0, 20),
    st.sampled_from([1, -1]),
)
def test_blocks_count_the_elements_that_start_in_a_chunk(
    chunk: int, total: int, start: int, shift: int, skip: int, step: int
):
    view = ooc.open(RecordingSource(sample_array((total, 1)), chunk))[start:]
    try:
        windows = view.windows(2, shift=shift)[skip:][::step]
    except EmptyError:
        return
    if len(windows) == 0 or chunk == 1:
        return
    request = windows.requests(np.arange(len(windows)), Draw())[0]
    starts = rows_of(request).reshape(len(windows), -1)[:, 0] // chunk
    blocks = windows.blocks.of(np.arange(len(windows)))
    assert_array_equal(np.diff(blocks) != 0, np.diff(starts) != 0)


def test_each_request_is_what_is_read():
    source = RecordingSource(np.arange(20))
    windows = ooc.open(source)[::2].windows(2, 1, stride=2)
    windows.take([3, 0])
    assert source.rows == [[6, 10, 0, 4], [12, 6]]


@pytest.mark.filterwarnings("ignore:windows cross gaps")
def test_windows_of_scalars_and_of_transposed_rows_chosen_one_by_one():
    rows = [1, 5, 3, 7]
    x, y = ooc.open(np.arange(10))[rows].windows(2, 1).take([0, 1])
    assert_array_equal(x, [[1, 5], [5, 3]])
    assert_array_equal(y, [[3], [7]])
    array = sample_array((10, 2, 3))
    view = ooc.open(array)[rows].transpose()
    assert_array_equal(view.windows(1).take([2, 0])[:, 0], array[[3, 1]].transpose(0, 2, 1))
    assert_array_equal(view[..., ::-1].windows(2).take([1])[0], array[[5, 3], ::-1].swapaxes(1, 2))


@pytest.mark.parametrize(
    "choose",
    [
        lambda v: v[3:40],
        lambda v: v[::-2],
        lambda v: v[np.arange(60, 4, -4)],
        lambda v: v.filter(np.arange(100) != 40),
        lambda v: v[np.arange(100) % 50 < 20],
        lambda v: v[[5, 5, 6]],
        lambda v: v.split(0.5, 0.5, stratify=np.zeros(100, int))[0],
        lambda v: v.split(0.5, 0.5, by=np.arange(100) // 10)[1],
        lambda v: v.split(0.5, 0.5, by=np.arange(100) // 10 % 2)[0],
        *(lambda v, at=at: v.folds(3)[at][0] for at in range(3)),
    ],
)
@pytest.mark.parametrize("axis", [0, (0, 1)])
def test_windows_that_cross_gaps_in_a_selection_warn(
    choose: Any, axis: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neighbours in a selection that are none in the array, as a filter or random split leave."""
    monkeypatch.setattr("oocdata.stretches.STRETCH", 7)
    shape = (100,) if axis == 0 else (5, 20)
    with warnings.catch_warnings(action="ignore"):
        view = choose(ooc.open(np.arange(100).reshape(shape), axis=axis))
    with warnings.catch_warnings(record=True, action="always") as caught:
        pairs = view.next_frame()
        ooc.windows((view, (0, 2)), pad=True)
    x, y = pairs.take(np.arange(len(pairs)))
    gaps = len(np.unique(y - x)) > 1
    assert [each.filename for each in caught] == [__file__] * 2 * gaps
    assert all("windows cross gaps" in str(each.message) for each in caught)
    with warnings.catch_warnings(action="error"):
        view.windows(1)
        view.windows(2, episodes="none")
        view.windows(1, 1, horizon=0)
        if (np.diff(view) == 1).any():
            runs = view.next_frame(episodes=ooc.episodes(time=view, step=1))
            x, y = runs.take(np.arange(len(runs)))
            assert (y - x == 1).all()


def test_windows_of_rows_chosen_in_any_order_never_cross_an_outer_place() -> None:
    array = np.arange(4 * 5.0).reshape(4, 5)
    chosen = np.array([0, 1, 7, 8, 9, 2, 3, 19])
    runs = [[0, 1], [7, 8, 9], [2, 3], [19]]
    windows = ooc.open(array, axis=(0, 1))[chosen].windows(2)
    expected = [run[at : at + 2] for run in runs for at in range(len(run) - 1)]
    assert_array_equal(windows.take(range(len(windows))), expected)


def test_windows_in_order_take_a_table_as_long_as_the_chunks() -> None:
    """Test that memory does not grow with millions of transitions in episodes."""
    import tracemalloc

    rows, chunk, episode = 2_000_000, 8_000, 1_000
    state = ooc.open(RecordingSource(np.broadcast_to(np.float32(0), (rows, 2)), (chunk, 1)))
    lengths = np.full(rows // episode, episode)
    windows = ooc.windows({"now": state, "next": (state, (1,))}, episodes=lengths)
    tracemalloc.start()
    loader = windows.batches(100, shuffle="block", seed=1)
    loader.positions(0)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert isinstance(loader.order, ooc.BlockShuffle)
    for blocks in (windows.blocks, loader.order.blocks):
        assert isinstance(blocks, BlockTable)
        assert blocks.nbytes <= 8 * (rows // chunk + 1)
    assert peak < 8 * len(windows) / 2


@given(
    st.lists(st.integers(2, 30), min_size=1, max_size=6), st.integers(1, 9), st.integers(0, 1),
    st.booleans(), st.data(),
)  # fmt: skip
def test_blocks_are_the_chunks_at_which_windows_start(
    lengths: list[int], chunk: int, targets: int, backwards: bool, data: st.DataObject
) -> None:
    view = ooc.open(RecordingSource(np.arange(sum(lengths)), (chunk,)))
    windows = view[:: -1 if backwards else 1].windows(1, targets, episodes=lengths)
    if data.draw(st.booleans()):
        windows = windows[data.draw(st.permutations(range(len(windows))))]
    blocks, count = windows.blocks, len(windows)
    assume(not isinstance(blocks, Blocks))  # one episode, or rows with addresses
    rows = windows.rows(np.arange(count))[:, 0]
    chunks = (len(view) - 1 - rows if backwards else rows) // chunk
    starts = blocks.starts(np.arange(blocks.number(count) + 1))
    found = [set(blocks.positions(np.arange(a, b)).tolist()) for a, b in pairwise(starts)]
    expected = [set(np.flatnonzero(chunks == one).tolist()) for one in np.unique(chunks)]
    assert found == expected
