"""Test views, with the original arrays as the oracle."""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal
from recording import RecordingSource

import oocdata as ooc
from oocdata.blocks import ADDRESSABLE
from oocdata.datasets.dataset import Draw
from oocdata.datasets.view import View
from oocdata.describe import as_json, fingerprint, from_json
from oocdata.errors import ArgumentError, EmptyError, PositionError, UnsupportedDtypeError
from oocdata.testing import sample_array

ARRAY = sample_array((20, 4, 6))


@pytest.fixture
def view() -> ooc.View:
    return ooc.open(ARRAY)


@pytest.mark.parametrize(
    "key",
    [
        7,
        -1,
        np.int8(3),
        np.uint64(3),
        np.array(3),
        (3,),
        (3, ...),
        (3, 1),
        (3, slice(1, 3), -1),
        (3, np.int8(-1), np.uint64(0)),
        (-20, ..., 0),
        (0, 0, 0),
    ],
    ids=repr,
)
def test_one_row(view: ooc.View, key: Any):
    got = view[key]
    assert_array_equal(got, ARRAY[key])
    assert got.shape == ARRAY[key].shape
    assert got.dtype == ARRAY.dtype


@pytest.mark.parametrize(
    "key",
    [
        slice(3, 7),
        slice(None, None, -3),
        slice(50, 70),
        slice(-5, None),
        slice(10**30),
        slice(np.int64(2), np.uint8(9)),
        [0, 5, 5, -1],
        np.array([3, 1], np.uint8),
        np.arange(20) % 3 == 0,
        np.zeros(20, bool),
        [True] * 20,
        [],
        ...,
        (),
        (slice(2, 4), 1),
        ([3, 4], slice(None), slice(None, None, -2)),
        (..., 2),
        (slice(None), slice(1, 1)),
        range(3, 9, 2),
    ],
    ids=repr,
)
def test_selections(key: Any):
    source = RecordingSource(ARRAY)
    view = ooc.open(source)[key]
    expected = ARRAY[np.arange(0)] if isinstance(key, list) and not key else ARRAY[key]
    assert isinstance(view, ooc.View)
    assert source.rows == []
    assert view.shape == expected.shape
    assert view.ndim == expected.ndim
    assert view.nbytes == expected.nbytes
    assert len(view) == len(expected)
    assert_array_equal(np.asarray(view), expected)


@pytest.mark.parametrize("key", [20, -21, 10**30, np.uint64(2**63), (0, 4), (0, 0, -7)], ids=repr)
def test_positions_out_of_range(view: ooc.View, key: Any):
    with pytest.raises(PositionError, match="within"):
        view[key]


@pytest.mark.parametrize(
    "key",
    [
        True,
        np.True_,
        None,
        1.0,
        "a",
        [0.5],
        [[1]],
        [True] * 19,
        np.zeros((20, 4), bool),
        (0, 0, 0, 0),
        (slice(None), [[0, 1]]),
        (0, None),
        (0, True),
        (0, np.True_),
        (0, 1.0),
        (0, "a"),
        (slice(None), slice(0.5, 2)),
        slice(None, None, 0),
        slice(0.5, 3),
        slice("a"),
        (slice(None), slice(None, None, 0)),
        (..., ...),
        ([[0]],),
        {1},
    ],
    ids=repr,
)
def test_invalid_indices(view: ooc.View, key: Any):
    with pytest.raises(ArgumentError, match="must"):
        view[key]


def test_iteration_ends(view: ooc.View):
    assert_array_equal(np.stack(list(view)), ARRAY)
    assert list(view[:0]) == []


@pytest.mark.parametrize("iterate", [list, reversed, enumerate, np.asarray])
def test_an_error_of_a_function_does_not_end_iteration(view: ooc.View, iterate: Any):
    """Python takes an IndexError for the end of what it iterates over by position."""

    def failing(batch: np.ndarray) -> np.ndarray:
        if (batch == ARRAY[7]).all(axis=(1, 2)).any():
            raise IndexError("of the function")
        return batch

    with pytest.raises(IndexError, match="of the function"):
        list(iterate(view.map(failing, spec=view.spec)))


def test_iteration_backwards(view: ooc.View):
    assert_array_equal(
        np.stack(list(reversed(view.next_frame().map(lambda x, y: y)))), ARRAY[:0:-1]
    )


def test_a_selection_is_not_the_users_array(view: ooc.View):
    rows = np.array([1, 2, 3])
    chosen = view[rows]
    rows[:] = 10**9
    assert_array_equal(np.asarray(chosen), ARRAY[[1, 2, 3]])
    mine = chosen[::-1]
    assert_array_equal(np.asarray(mine), ARRAY[[3, 2, 1]])
    assert not mine.rows.flags.writeable


def test_regular_selections_stay_ranges(view: ooc.View):
    assert view[::2][::-1][1:4].rows == range(16, 10, -2)
    assert view[range(0, 20, 2)].rows == range(0, 20, 2)


def test_huge_ranges_are_not_listed():
    """Test huge ranges, whose positions would take days to list."""

    class Vast(RecordingSource):
        shape = (2**50, 3)

    view = ooc.View.of(Vast(np.zeros(3, "f4")))
    assert view[range(5, 2**50, 2)].rows == range(5, 2**50, 2)
    assert view[range(2**50 - 1, -1, -1)].rows == range(2**50 - 1, -1, -1)


def test_take_owns_its_memory(view: ooc.View):
    first = view.take([1, 2])
    first[...] = -1
    assert_array_equal(view.take([1, 2]), ARRAY[[1, 2]])
    assert view.take([]).shape == (0, 4, 6)
    assert view.take(np.arange(20) > 17).shape == (2, 4, 6)


def test_asarray(view: ooc.View):
    assert_array_equal(np.asarray(view[::-1, 0], "f8"), ARRAY[::-1, 0].astype("f8"))
    assert np.asarray(view, "i2").dtype == np.dtype("i2")
    assert np.array(view, copy=True).flags.writeable
    assert np.asarray(view[:0]).shape == (0, 4, 6)
    with pytest.raises(ArgumentError, match="must be a copy"):
        np.asarray(view, copy=False)
    assert np.mean(view) == ARRAY.mean()


def test_an_array_that_memory_can_not_hold(tmp_path: Path) -> None:
    """What `fit(view, labels)` would read: the error says what to pass instead."""
    path = tmp_path / "big.npy"
    with open(path, "wb") as file:  # a file of holes
        header = {"descr": "<f4", "fortran_order": False, "shape": (1 << 40, 2)}
        np.lib.format.write_array_header_2_0(file, header)
        file.truncate(file.tell() + (1 << 43))
    view = ooc.open(path)
    with pytest.raises(
        MemoryError, match=r"<View: [0-9,]+ rows.*big\.npy.*\.batches\(size\)\.to_tf"
    ):
        np.asarray(view)
    assert view[-1].tolist() == [0, 0]


def test_asarray_of_other_datasets():
    """Without a rule of its own, NumPy would read row by row, also for `np.shape`."""
    source = RecordingSource(ARRAY)
    view = ooc.View.of(source)
    triples = np.lib.stride_tricks.sliding_window_view(ARRAY, 3, axis=0).transpose(0, 3, 1, 2)
    assert_array_equal(np.asarray(view.windows(3), "f8"), triples)
    both = ooc.concat([view.map(np.negative, spec=view.spec), view])
    assert_array_equal(np.asarray(both), np.concatenate([-ARRAY, ARRAY]))
    reads = len(source.reads)
    assert reads <= 3
    pairs = view.next_frame()
    for several in (pairs, ooc.zip({"x": view, "y": view}), ooc.concat([pairs, pairs])):
        for call in (np.asarray, np.shape, np.mean):
            with pytest.raises(ArgumentError, match="one dense array each"):
                call(several)
    assert len(source.reads) == reads


def test_methods_that_pytorch_calls(view: ooc.View):
    assert view.__getitems__([]) == []
    with pytest.raises(ArgumentError):
        view.__getitems__([0.5])


def test_dtypes(view: ooc.View):
    assert view.astype("f4") is view
    assert view.astype(">f8").dtype == np.dtype("f8")
    assert view.astype(">f8").dtype.isnative
    assert_array_equal(np.asarray(view.astype("f8").astype("i4")), ARRAY.astype("i4"))
    with pytest.raises(ArgumentError, match="given once where a conversion loses something"):
        view.astype("u1").astype("f8")
    assert_array_equal(
        view[:, 1].astype("i8")[::2, ::-1].take([3]), ARRAY[[6], 1, ::-1].astype("i8")
    )
    with pytest.raises(ArgumentError, match="must be complex"):
        ooc.open(np.zeros(3, "c8")).astype("f4")
    for wrong in ("U3", object, "M8[s]", np.longdouble):
        with pytest.raises(UnsupportedDtypeError):
            view.astype(wrong)
    with pytest.raises(ArgumentError, match="`dtype` must"):
        view.astype("nonsense")


@given(st.data())
def test_blocks_count_the_positions_of_a_chunk(data: st.DataObject):
    chunk = data.draw(st.integers(1, 12))
    total = data.draw(st.integers(1, 60))
    start = data.draw(st.integers(0, total))
    stop = data.draw(st.integers(start, total))
    step = data.draw(st.sampled_from([1, -1]))
    view = ooc.open(RecordingSource(sample_array((total, 1)), chunk))[start:stop][::step]
    chunks = [row // chunk for row in view.rows]
    first, length = view.blocks.first, view.blocks.length
    assert 1 <= first <= length
    if not chunks:
        return
    assert length == chunk
    borders = [i for i in range(1, len(chunks)) if chunks[i] != chunks[i - 1]]
    assert borders == list(range(first, len(chunks), length))


@given(
    st.integers(1, 12), st.integers(1, 60), st.integers(0, 59), st.sampled_from([2, 3, 7, -2, -5])
)
def test_blocks_with_a_step(chunk: int, total: int, start: int, step: int):
    view = ooc.open(RecordingSource(sample_array((total, 1)), chunk))[start::step]
    if view.blocks == ADDRESSABLE:
        assert len(view) == 0 or len({row // chunk for row in view.rows}) == len(view)
        return
    blocks = view.blocks.of(np.arange(len(view)))
    assert_array_equal(np.diff(blocks) != 0, np.diff([row // chunk for row in view.rows]) != 0)


def test_split(view: ooc.View):
    parts = view.split(0.6, 0.2, 0.2)
    assert [part.rows for part in parts] == [range(12), range(12, 16), range(16, 20)]
    assert [part.rows for part in view.split(3, 4, gap=2)] == [range(3), range(5, 9)]


def test_rows_of_a_lookup_table_are_shared_by_no_two_parts(view: ooc.View):
    table, numbers = ooc.open(np.array([10, 20, 30])), np.repeat([0, 1, 2], [7, 7, 6])
    first, second = ooc.zip(view, table[numbers]).split(0.4, 0.6)
    assert [len(part) for part in (first, second)] == [6, 8]  # 6 elements also have row 10 or 20
    assert not {*first.take(np.arange(6))[1]} & {*second.take(np.arange(8))[1]}
    with pytest.raises(EmptyError, match="19 dropped between neighbours, which share no row"):
        ooc.zip(view, table[np.zeros(20, int)]).split(0.5, 0.5)


@pytest.mark.filterwarnings("ignore:windows cross gaps")
@pytest.mark.parametrize(
    "choose",
    [
        lambda v: v,
        lambda v: v.windows(2),
        lambda v: v.map(abs),
        lambda v: ooc.zip(v, v),
    ],
)
def test_rows_chosen_twice_are_in_one_part(view: ooc.View, choose: Any):
    made = choose(view[np.arange(30) // 3][::-1])
    for one, other in (made.split(0.45, 0.55), made.split_at(16, coordinate=np.arange(30))):
        found = [part.take(np.arange(len(part))) for part in (one, other)]
        rows = [np.unique(part[0] if isinstance(part, tuple) else part) for part in found]
        assert not np.intersect1d(*rows).size
        assert 24 <= len(one) + len(other) < len(made)
    with pytest.raises(ArgumentError, match=r"share no row|single rows"):
        made.split(0.5, 0.5, stratify=np.arange(30) % 2)
    parts = choose(view[[3, 1, 0, 2, 7]]).split(0.5, 0.5)
    assert all(len(part) for part in parts)


@pytest.mark.parametrize(
    ("call", "kind", "message"),
    [
        (lambda v: v.split(), ArgumentError, "must be positive"),
        (lambda v: v.split(0.5, 0.6), ArgumentError, "sum to at most 1"),
        (lambda v: v.split(15, 6), ArgumentError, "sum to at most 20"),
        (lambda v: v.split(0.5, 0.5, gap=-1), ArgumentError, "`gap` must"),
        (lambda v: v.split(0.5, 0.5, gap=True), ArgumentError, "`gap` must"),
        (lambda v: v.split(0.5, 0.5, gap=19), EmptyError, "19 dropped"),
        (lambda v: v[:0].split(1.0), EmptyError, "at least one element"),
    ],
)
def test_wrong_splits_and_shards(view: ooc.View, call: Any, kind: Any, message: str):
    with pytest.raises(kind, match=message):
        call(view)


def test_random_numbers_depend_on_the_place_of_a_batch_alone():
    def numbers(*where: int) -> list[int]:
        return Draw(*where).rng.integers(2**60, size=3).tolist()

    assert numbers(7, 1, 2) == numbers(7, 1, 2)
    places = [(7, 1, 2), (7, 2, 1), (8, 1, 2), (-7, 1, 2), (0, 0, 0), (2**70, 0, 0), (7, 1, 3)]
    assert len({tuple(numbers(*where)) for where in places}) == len(places)


KEYS = (
        np.s_[:, [0, 2, 5]], np.s_[:, [5, 0, 0]], np.s_[1:4, [1, 2, 3]], np.s_[:, 2, [0, 3]],
        np.s_[:, [0, 6], ::2, 1:], np.s_[::2, :, [True, False, True, True]],
        np.s_[:, ::-1, [3, 0]], np.s_[:, -1:-5:-2, :, [-1, 0]],
)  # fmt: skip


@pytest.mark.parametrize("kind", ["memory", "npy", "gzip"])
def test_element_axes_are_indexed_by_arrays(tmp_path: Path, kind: str):
    array = sample_array((6, 7, 4, 5))
    if kind == "npy":
        np.save(tmp_path / "a.npy", array)
    if kind == "gzip":
        with h5py.File(tmp_path / "a.h5", "w") as file:
            file.create_dataset("u", data=array, chunks=(2, 3, 4, 2), compression="gzip")
    target = {"memory": array, "npy": tmp_path / "a.npy", "gzip": tmp_path / "a.h5"}[kind]
    for key in KEYS:
        expected = array[key[0]][:, *key[1:]]
        view = ooc.open(target)[key]
        assert_array_equal(np.asarray(view), expected)
        _, y = view.windows(1, 1).take([0, 1])
        assert_array_equal(y, expected[1:3, None])


@pytest.mark.parametrize("chunks", [None, (4, 16)])
def test_many_chosen_columns_are_read_and_split_as_one(chunks: tuple[int, int] | None) -> None:
    """Choose 300 of 1,000 columns: apart, each was an array of its own to read and to compare."""
    array = sample_array((40, 1000))
    source = RecordingSource(array, chunks)
    columns = np.random.default_rng(0).permutation(1000)[:300]
    view = View.of(source)[:, columns]
    assert_array_equal(view.take([7, 3]), array[[7, 3]][:, columns])
    assert len(source.reads) == 1
    assert len(view.boxes(np.arange(2))) == len(view.sources()) == 1
    first, second = view.split(0.5, 0.5)
    assert_array_equal(np.asarray(second[:, ::-2]), array[20:, columns[::-2]])
    assert len(first._stored_rows()) == 1
    pairs = ooc.zip(view, View.of(source)[::-1])
    with pytest.raises(ArgumentError, match="share no row"):
        pairs.split(0.5, 0.5, stratify=np.arange(40) % 2)


@pytest.mark.parametrize(("chosen", "pieces"), [(range(0, 50, 2), 5), ([0, 5, 9], 1), ([49, 3], 2)])
def test_chosen_columns_are_in_the_chunks_that_hold_them(chosen: Any, pieces: int) -> None:
    """`explain` said that each column was a chunk of its own."""
    source = RecordingSource(np.arange(2000).reshape(40, 50), (8, 10))
    view = View.of(source)[:, np.array(chosen)]
    rows, columns = view.storage.chunks or ()
    assert (rows, -(-len(chosen) // columns)) == (8, pieces)


def test_chosen_columns_far_apart_are_read_alone() -> None:
    source = RecordingSource(sample_array((5, 20_000)))
    view = View.of(source)[:, [19_000, 3, 2, 9_000]]
    assert_array_equal(view.take([1, 4]), source.array[[1, 4]][:, [19_000, 3, 2, 9_000]])
    assert sorted(extent.lengths[1] for extent in source.extents) == [1, 1, 2]


def test_views_of_chosen_columns_are_described(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", sample_array((6, 9, 4)))
    loader = ooc.open(tmp_path / "a.npy")[:, [8, 0, 0, 3]].windows(2).batches(2)
    again = from_json(as_json(loader))
    assert_array_equal(again.batch(1), loader.batch(1))
    assert fingerprint(again) == fingerprint(loader)


def test_the_mask_of_chosen_columns_of_padded_rows() -> None:
    view = ooc.open([np.ones((2, 1)), np.ones((1, 4))], pad=0)[:, [3, 0, 1]]
    assert np.asarray(view.mask()).tolist() == [[0, 1, 0], [0, 1, 0], [1, 1, 1]]


@pytest.mark.parametrize(
    ("key", "message"),
    [
        (np.s_[:, []], "must not be empty"),
        (np.s_[:, [0], [1]], "may be indexed by an array"),
        (np.s_[[0], [1]], "at most one axis may be indexed"),
        (np.s_[:, "x"], "ints, slices and arrays"),
        (np.s_[:, [[0]]], "in one dimension"),
    ],
    ids=str,
)
def test_wrong_arrays_along_an_element_axis(key: Any, message: str):
    with pytest.raises(ArgumentError, match=message):
        _ = ooc.open(sample_array((6, 7, 4)))[key]


def test_many_small_rows_are_read_in_the_memory_of_their_values(tmp_path: Path) -> None:
    """Test rows of four bytes; taken by position, each took 80 bytes more."""
    array = np.random.default_rng(0).integers(0, 9, (500_000, 2)).astype("u2")
    np.save(tmp_path / "a.npy", array)
    view = ooc.open(tmp_path / "a.npy")
    np.asarray(view[:70_000])  # import the modules
    tracemalloc.start()
    found = np.asarray(view)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert_array_equal(found, array)
    assert peak < 4 * array.nbytes
    rows = np.random.default_rng(1).permutation(len(array))[:200_000]
    assert_array_equal(np.asarray(view[::-1], "f4"), array[::-1].astype("f4"))
    assert_array_equal(np.asarray(view[rows][:, 1]), array[rows, 1])
