"""Test stacked arrays, with NumPy as the oracle, and count reads."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import h5py
import ml_dtypes
import numpy as np
import pytest
from boxes import check_boxes
from counting import counted
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal
from recording import RecordingSource

import oocdata as ooc
from oocdata.box import Extent
from oocdata.datasets.stack import Stacked
from oocdata.datasets.view import View
from oocdata.describe import as_json, fingerprint, from_json
from oocdata.engines.axis_views import AxisView, take_places
from oocdata.engines.chunked import Chunked
from oocdata.engines.memory_array import MemoryArray
from oocdata.engines.source import Source
from oocdata.errors import ArgumentError, MismatchedPartsError, SourceError
from oocdata.testing import SourceConformance, sample_array


class TestPlaced(SourceConformance):
    def make(self, folder: Path, array: np.ndarray) -> Source:
        """Reverse the axes, flip the last, and keep every second position of the first."""
        last = array.ndim - 1
        stored = np.repeat(array, 2, axis=0)[..., ::-1].T.copy()
        lines = [(axis, range(array.shape[axis])) for axis in range(last, -1, -1)]
        lines[-1] = (0, range(0, 2 * array.shape[0], 2))
        lines[0] = (last, range(array.shape[last] - 1, -1, -1)) if last else lines[0]
        if not last:
            stored = np.repeat(array, 2)
        return AxisView(MemoryArray(stored), tuple(lines), array.shape, array.dtype)


def test_positions_from_a_table() -> None:
    """Index the first axis by a table; the array has one more axis."""
    array = sample_array((23, 3, 5, 4))
    table = np.random.default_rng(0).permutation(len(array))
    stored = np.empty((*array.shape, 2), array.dtype)
    stored[table, ..., 1] = array
    lines = [(0, table), *((axis, range(n)) for axis, n in enumerate(array.shape) if axis)]
    placed = AxisView(MemoryArray(stored), (*lines, (None, 1)), array.shape, array.dtype)
    check_boxes(placed, array)


@pytest.mark.parametrize("gap", [0, 60, 1000])
def test_positions_from_a_table_along_an_element(gap: int, monkeypatch: Any) -> None:
    """Read chosen positions, some of them twice, with those between them or without."""
    monkeypatch.setattr("oocdata.engines.axis_views._GAP_BYTES", gap)
    stored = sample_array((23, 9, 5))
    table = np.array([7, 0, 2, 2, 3, 8, 0])
    check_boxes(take_places(MemoryArray(stored), 1, table), stored[:, table])


@pytest.mark.parametrize(("gap", "reads"), [(1 << 12, 1), (0, 40)])
def test_boxes_at_several_places_of_a_table(gap: int, reads: int, monkeypatch: Any) -> None:
    """Count the reads: one by one, chosen positions take a read each."""
    monkeypatch.setattr("oocdata.engines.axis_views._GAP_BYTES", gap)
    source = RecordingSource(sample_array((6, 400, 5)))
    table, begins = np.arange(0, 400, 2)[::-1].copy(), np.arange(12) * 14
    origins = np.stack([np.arange(12) % 6, begins, np.zeros(12, np.int64)], axis=1)
    out = np.empty((12, 1, 40, 5), source.dtype)
    take_places(source, 1, table).read(origins, Extent.of((1, 40, 5)), out)
    for box, row, begin in zip(out, origins[:, 0], begins, strict=True):
        assert_array_equal(box[0], source.array[row, table[begin : begin + 40]])
    assert len(source.reads) == reads


def test_no_numbers_at_chosen_positions(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("u", data=sample_array((40, 6, 5)), chunks=(4, 3, 5), compression=1)
    loader = ooc.open(tmp_path / "a.h5")[:, [1, 4], 0:0].batches(8, shuffle=True)
    assert "40" in str(loader.explain())
    assert [batch.shape for batch in loader] == [(8, 2, 0)] * 5


class TestStacked(SourceConformance):
    def make(self, folder: Path, array: np.ndarray) -> Source:
        if array.ndim == 1:
            return Stacked((ooc.open(array[:, None]),), 0, False).source.parts[0]
        parts = []
        for number in range(array.shape[-1]):
            path = folder / f"{number}.h5"
            with h5py.File(path, "w") as file:
                options = {"chunks": True, "compression": "lzf"} if number % 2 else {}
                file.create_dataset("u", data=array[..., number], **options)
            parts.append(ooc.open(path))
        return Stacked(tuple(parts), array.ndim - 2, True)

    def test_one_dimension(self, tmp_path: Path) -> None:
        pytest.skip("an array of one axis has no channels")


def test_boxes_of_concatenated_channels() -> None:
    array = sample_array((23, 3, 5, 4))
    check_boxes(Stacked(tuple(map(ooc.open, np.split(array, [1], axis=-1))), 2, False), array)


def chosen(array: np.ndarray, data: st.DataObject) -> View:
    """Return a view of a transposed, cut or selected array with these rows and elements."""
    kind = data.draw(st.sampled_from(["plain", "moved", "cut", "reversed", "taken", "chunks"]))
    if kind == "moved":
        return ooc.open(np.ascontiguousarray(np.moveaxis(array, 0, -1)), axis=-1)
    if kind == "cut":
        wide = np.zeros((len(array) + 3, array.shape[1] * 2 + 1, *array.shape[2:]), array.dtype)
        wide[2:-1, 1::2] = array
        return ooc.open(wide)[2:-1, 1::2]
    if kind == "reversed":
        return ooc.open(array[::-1, ::-1])[::-1, ::-1]
    if kind == "taken":
        table = np.random.default_rng(1).permutation(len(array))
        back = np.empty_like(array)
        back[table] = array
        return ooc.open(back)[table]
    if kind == "chunks":
        return counted(array, 3, *[2] * (array.ndim - 1))[0]
    return ooc.open(array)


@pytest.mark.filterwarnings("ignore:windows cross gaps")
@given(st.data())
def test_any_views(data: st.DataObject) -> None:
    shape = (7, *data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=3)))
    arrays = [sample_array(shape) + 1000 * n for n in range(data.draw(st.integers(1, 3)))]
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    view = ooc.stack([chosen(array, data) for array in arrays], axis)
    place = axis + 1 if axis >= 0 else axis
    expected = np.stack(arrays, place)
    cut = data.draw(st.sampled_from([(), (slice(1, 6),), (slice(None, None, -2),)]))
    order = np.random.default_rng(0).permutation(len(shape))
    expected = expected[cut].transpose(0, *(order + 1))
    view = view[cut[0] if cut else slice(None)].transpose(*order.tolist())
    assert view.shape == expected.shape
    assert_array_equal(np.asarray(view), expected)
    x, y = view.windows(2, 1).take([0])
    assert_array_equal(x[0], expected[:2])
    assert_array_equal(y[0], expected[2:3])


def test_concatenated_channels_of_any_number() -> None:
    parts = [sample_array((9, 4, n)) + 100 * n for n in (2, 1, 3)]
    view = ooc.concatenate(map(ooc.open, parts))
    assert_array_equal(np.asarray(view), np.concatenate(parts, -1))
    again = ooc.concatenate([ooc.stack([ooc.open(parts[0][..., 0])]), view[:, :, ::2]], axis=1)
    expected = np.concatenate([parts[0][..., :1], np.concatenate(parts, -1)[..., ::2]], -1)
    assert_array_equal(np.asarray(again), expected)
    rows = ooc.concatenate([ooc.open(parts[0]), ooc.open(parts[0])[:, :1]], axis=0)
    assert_array_equal(np.asarray(rows), np.concatenate([parts[0], parts[0][:, :1]], 1))


def test_trajectories_stacked_with_steps_and_constants() -> None:
    """Test The Well's layout: fields per step, per trajectory, per position, and constant."""
    field = sample_array((3, 5, 4, 6))
    still, line = sample_array((3, 4, 6)) + 500, sample_array((3, 5)) + 900
    mask = sample_array((6,)) + 700
    parts = [
        ooc.open(field, axis=(0, 1)),
        ooc.open(still, axis=0),
        ooc.open(line, axis=(0, 1)),
        mask,
        0.5,
    ]
    view = ooc.stack(parts)
    whole = [still[:, None], line[:, :, None, None], mask, np.float32(0.5)]
    expected = np.stack([field, *(np.broadcast_to(one, field.shape) for one in whole)], -1)
    assert view.sample_shape == (3, 5)
    assert view.dtype == np.float32
    assert_array_equal(np.asarray(view), expected.reshape(15, 4, 6, 5))
    x, y = view.windows(2, 1).take(np.arange(9))
    starts = [(i, j) for i in range(3) for j in range(3)]
    assert_array_equal(x, [expected[i, j : j + 2] for i, j in starts])
    assert_array_equal(y, [expected[i, j + 2 : j + 3] for i, j in starts])
    mixed = [14, 0, 13, 1, 12, 2, 3, 4]  # two trajectories, each read once
    assert_array_equal(view.take(mixed), expected.reshape(15, 4, 6, 5)[mixed])
    train, held = view.split(1, 1)
    assert_array_equal(np.asarray(held), expected[1])
    assert len(train) == 5
    cut = view.patches((2, 3), axes=(0, 1)).take([0, 5])
    assert_array_equal(cut[1], expected[0, 1, 0:2, 3:6])


def test_ambiguous_selections_are_refused() -> None:
    """Test an ambiguous part: its rows could be steps, or trajectories that repeat."""
    steps, three = ooc.open(sample_array((3, 5)), axis=(0, 1)), ooc.open(sample_array((3,)))
    with pytest.raises(ArgumentError, match="got 3 rows beside 3 of 3 × 5"):
        ooc.stack([steps[[0, 1, 7]], three])
    both = ooc.stack([steps, three])[[0, 1, 7]]
    assert_array_equal(both, ooc.stack([steps[[0, 1, 7, 8]], three])[:3])
    assert_array_equal(np.asarray(both)[:, 1], sample_array((3,))[[0, 0, 1]])


def test_sample_axes_are_found_by_name(tmp_path: Path) -> None:
    field, force = sample_array((3, 5, 4)), sample_array((5, 4)) + 100
    with h5py.File(tmp_path / "a.h5", "w") as file:
        for name, array, axes in (("u", field, "bt"), ("f", force, "t")):
            file[name] = array
            for number, axis in enumerate(axes):
                file[name].dims[number].label = axis
    u = ooc.open(tmp_path / "a.h5", "u", axis=("b", "t"))
    view = ooc.stack([u, ooc.open(tmp_path / "a.h5", "f", axis="t")])
    expected = np.stack([field, np.broadcast_to(force, field.shape)], -1)
    assert_array_equal(np.asarray(view), expected.reshape(15, 4, 2))
    assert view.names == ("b", "t", None, None)
    assert_array_equal(np.asarray(view.split(2, 3, axis="t")[1])[:3], expected[0, 2:])


def test_axes_of_one_name_go_together(tmp_path: Path) -> None:
    """Where all axes are as long, only their names tell a transposed variable."""
    array = sample_array((5, 5, 5))
    with h5py.File(tmp_path / "a.h5", "w") as file:
        for axes in ("tyx", "txy", "ytx", "ty", "x", "uv"):
            file[axes] = array[(0,) * (3 - len(axes))]
            for number, axis in enumerate(axes):
                file[axes].dims[number].label = axis

    def opened(axes: str, axis: str) -> ooc.View:
        return ooc.open(tmp_path / "a.h5", axes, axis=axis)

    u = opened("tyx", "t")
    for axes, axis in (("txy", "t"), ("ytx", "y"), ("ty", "t"), ("x", "x")):
        for parts in ([u, opened(axes, axis)], [opened(axes, axis), u]):
            with pytest.raises(MismatchedPartsError, match=r"at one place; they have \('"):
                ooc.stack(parts)
    view = ooc.stack([u, opened("txy", "t").transpose(1, 0), opened("ytx", "t"), opened("uv", "u")])
    expected = [array, array.transpose(0, 2, 1), array.transpose(1, 0, 2)]
    assert_array_equal(np.asarray(view)[..., :3], np.stack(expected, -1))


def test_lags_as_channels() -> None:
    array = sample_array((20, 3))
    v = ooc.open(array)
    view = ooc.stack([v[2:], v[1:-1], v[:-2]])
    assert_array_equal(np.asarray(view), np.stack([array[2:], array[1:-1], array[:-2]], -1))
    assert_array_equal(view[5:][::-3].take([1]), np.asarray(view)[5:][::-3][1:2])


# Counts of reads ----------------------------------------------------------------------------------


def test_each_part_is_read_once_per_batch() -> None:
    parts = [RecordingSource(sample_array((10, 4, 6)) + 100 * n) for n in range(3)]
    view = ooc.stack([ooc.open(part) for part in parts])
    assert [part.reads for part in parts] == [[], [], []]
    batch = view.batches(4, shuffle="global", seed=1).batch(0)
    rows = parts[0].rows[0]
    assert [part.rows for part in parts] == [[rows]] * 3
    assert_array_equal(batch, np.stack([part.array[rows] for part in parts], -1))


def test_parts_outside_a_box_are_not_read() -> None:
    parts = [RecordingSource(sample_array((10, 4, n)) + 100 * n) for n in (2, 1, 3)]
    view = ooc.concatenate([ooc.open(part) for part in parts])
    view[:, 1:, 2:5].take([7, 2])
    assert [part.reads for part in parts] == [
        [],
        [[[7, 1, 0], [2, 1, 0]]],
        [[[7, 1, 0], [2, 1, 0]]],
    ]
    assert [part.extents[0].lengths for part in parts[1:]] == [(1, 3, 1), (1, 3, 2)]
    for part in parts:
        part.forget()
    view.patches((2, 2)).batches(60).batch(0)  # on a grid: the second patch is in two parts
    elements = [
        sum(len(r) * e.size for r, e in zip(p.reads, p.extents, strict=True)) for p in parts
    ]
    assert elements == [80, 40, 120]


def test_shared_parts_are_read_once_per_batch() -> None:
    mask, still = sample_array((4, 6)), RecordingSource(sample_array((3, 4, 6)))
    field = RecordingSource(sample_array((3, 5, 4, 6)))
    view = ooc.stack([ooc.open(field, axis=(0, 1)), ooc.open(still), mask])
    assert still.reads == []
    loader = view.windows(2).batches(5)  # of 4 windows a trajectory
    batches = [loader.batch(step) for step in range(3)]
    assert [len(read) for read in still.reads] == [5, 5, 1]  # the last batch is of one trajectory
    assert [len(read) for read in field.reads] == [5, 5, 2]
    assert_array_equal(batches[1][0, 1, ..., 1], still.array[1])
    assert_array_equal(batches[2][1, 1, ..., 2], mask)


def test_chunks_are_decoded_once_for_every_part() -> None:
    arrays = [sample_array((64, 6)) + 1000 * n for n in range(2)]
    views, decoded = zip(*(counted(array, 8, 3) for array in arrays), strict=True)
    view = ooc.stack(views)[4:].next_frame()
    assert view.blocks.length == 8  # type: ignore[union-attr]
    loader = view.batches(8, shuffle="block", seed=3)
    seen = []
    for x, y in loader.epoch(0):
        assert_array_equal(y - x, np.full_like(x, 6))
        seen.extend((x[:, 0, 0] // 6).tolist())
    assert sorted(seen) == list(range(4, 63))
    assert [set(one.values()) for one in decoded] == [{1}, {1}]
    assert [len(one) for one in decoded] == [16, 16]
    assert loader.explain().amplification == pytest.approx(1.0, abs=0.2)


def test_chunks_begin_where_they_do_in_the_file() -> None:
    views = [counted(sample_array((64, 6)), 8, 3)[0] for _ in range(2)]
    view = ooc.stack([one[3:50] for one in views])
    assert (view.blocks.length, view.blocks.first) == (8, 5)  # type: ignore[union-attr]


def test_chunks_of_the_whole_are_those_of_the_parts(tmp_path: Path) -> None:
    for name in "ab":
        with h5py.File(tmp_path / f"{name}.h5", "w") as file:
            options: dict[str, Any] = {"chunks": (8, 3, 2), "compression": "gzip"}
            file.create_dataset("u", data=np.zeros((40, 6, 4), "f4"), **options)
    files = [tmp_path / "a.h5", tmp_path / "b.h5"]
    view = ooc.stack([ooc.open(files, "u"), ooc.open(files, "u")], axis=1)
    storage = view.storage
    assert view.shape == (80, 6, 2, 4)
    assert storage.chunks == (8, 3, 1, 2)
    assert (storage.parts, storage.parts_axis) == ((0, 40), 0)
    assert len(storage.files) == 2
    assert storage.opened is None
    assert len(view.windows(2, episodes="parts")) == 78


def test_episodes_of_all_parts_end_at_the_same_rows(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        for number, (own, other) in enumerate([(5, 4), (3, 4)]):
            file[f"run_{number}/u"], file[f"run_{number}/w"] = np.zeros(own), np.ones(own)
            file[f"run_{number}/v"] = np.zeros(other)
    u, v, w = (ooc.open(tmp_path / "a.h5", f"run_*/{name}") for name in "uvw")
    assert len(ooc.stack([u, w]).windows(2)) == 4 + 2
    with pytest.raises(ArgumentError, match="episodes of the same lengths"):
        ooc.stack([u, v])


# Dtypes and errors --------------------------------------------------------------------------------


def test_one_of_the_dtypes_must_hold_the_numbers_of_all() -> None:
    f4, u1, i4, f8 = (
        ooc.open(np.arange(6, dtype=d).reshape(3, 2)) for d in ("f4", "u1", "i4", "f8")
    )
    assert ooc.stack([f4, u1, 3, 0.5]).dtype == np.float32
    assert ooc.stack([f8, i4]).dtype == np.float64
    for parts in ([f4, i4], [f8, ooc.open(np.arange(3))], [u1, 0.5], [u1, np.int8(1)]):
        with pytest.raises(ArgumentError, match=r"one dtype.*Convert some with \.astype"):
            ooc.stack(parts)
    assert_array_equal(np.asarray(ooc.stack([i4.astype("f4"), f4])).dtype, np.float32)


@pytest.mark.parametrize(
    ("dtype", "part", "said"),
    [
        ("u1", 300, "got uint8, 300"),
        ("u1", -1, "got uint8, -1"),
        ("f2", 70000, "got float16, 70000"),
        ("f4", 1e300, "got float32, 1e+300"),
        ("S3", 2, "got |S3, 2"),
        ("U3", 2.5, "got <U3, 2.5"),
        ("f2", ooc.open(np.zeros(4, ml_dtypes.bfloat16)), "got float16, bfloat16"),
    ],
)
def test_constants_and_dtypes_that_no_part_can_hold(dtype: str, part: Any, said: str) -> None:
    view = ooc.open(np.zeros(4, dtype))
    with pytest.raises(ArgumentError, match=re.escape(said)):
        ooc.stack([view, part])


def test_texts_of_one_dtype_are_stacked() -> None:
    texts = np.array(["a", "bb", "ccc"]), np.array(["xxx", "", "ÿ"])
    assert_array_equal(ooc.stack(list(map(ooc.open, texts))), np.stack(texts, axis=-1))


def test_constants_that_a_part_can_hold() -> None:
    for dtype, number in (("u1", 255), ("i8", 2**63 - 1), ("f4", 0.1), ("f2", math.inf)):
        made = ooc.stack([ooc.open(np.zeros(4, dtype)), number])
        assert made.dtype == dtype
        assert made[2][1] == np.dtype(dtype).type(number)
    assert np.isnan(ooc.stack([ooc.open(np.zeros(4, "f4")), math.nan])[2][1])


def test_numbers_pass_through_the_dtype_of_the_part() -> None:
    fine = np.linspace(0, 1, 50).reshape(10, 5)
    view = ooc.stack([ooc.open(fine).astype("f4"), ooc.open(fine.astype("f4"))]).astype("f8")
    assert_array_equal(view[3][:, 0], view[3][:, 1])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda v: ooc.stack([]), "at least one View"),
        (lambda v: ooc.stack([np.zeros(3)]), "at least one View"),
        (lambda v: ooc.stack([v, v.windows(2)]), r"must get Views; got <Windows.*\.windows"),
        (lambda v: ooc.stack([v, v[:9]]), "9 rows beside 10 rows"),
        (lambda v: ooc.stack([v, v], axis=3), r"one of the 3 axes.*got 3"),
        (lambda v: ooc.stack([v, v], axis=True), "got True"),
        (lambda v: ooc.stack([v, v[:, :2]]), r"one shape.*\(3, 4\), \(2, 4\)"),
        (lambda v: ooc.concatenate([v, v[:, :2]]), r"besides axis 1.*\(3, 4\), \(2, 4\)"),
        (lambda v: ooc.concatenate([v, np.zeros(4, "f4")]), r"\(3, 4\), \(4,\)"),
    ],
)
def test_mismatched_parts(make: Any, message: str) -> None:
    with pytest.raises(ooc.errors.OocdataError, match=message):
        make(ooc.open(np.zeros((10, 3, 4), "f4")))


def test_rows_of_several_sample_axes_have_the_same_selection() -> None:
    array = sample_array((3, 5, 2))
    a, b = ooc.open(array, axis=(0, 1)), ooc.open(array + 100, axis=(0, 1))
    view = ooc.stack([a[[7, 2]], b[[7, 2]]])
    assert_array_equal(np.asarray(view)[0], np.stack([array[1, 2], array[1, 2] + 100], -1))
    assert len(ooc.stack([a[3:9], b[3:9]]).windows(3)) == 2  # 3 and 4, 5–8: none crosses
    with pytest.raises(ArgumentError, match=r"6 rows of 3 × 5\. Select after"):
        ooc.stack([a[3:9], b[2:8]])


# Everywhere else ----------------------------------------------------------------------------------


@pytest.fixture
def files(tmp_path: Path) -> ooc.View:
    array = sample_array((40, 6, 4))
    np.save(tmp_path / "u.npy", array)
    with h5py.File(tmp_path / "v.h5", "w") as file:
        file.create_dataset("v", data=array + 1000, chunks=(8, 6, 4), compression="gzip")
        file["mask"] = array[0]
    mask = np.asarray(ooc.open(tmp_path / "v.h5", "mask"))
    return ooc.stack([
        ooc.open(tmp_path / "u.npy"), ooc.open(tmp_path / "v.h5", "v"), mask, array[1, 0]
    ])  # fmt: skip


def test_description_round_trip(files: ooc.View) -> None:
    loader = files.windows(2, 1).patches((2, 2), per_row=2).batches(8, shuffle=True, seed=5)
    text = as_json(loader)
    again = from_json(text)
    assert as_json(again) == text
    assert fingerprint(again) == fingerprint(loader)
    for one, other in zip(loader.batch(3, epoch=1), again.batch(3, epoch=1), strict=True):
        assert_array_equal(one, other)
    other = ooc.stack([files.source.parts[0], *files.source.parts[:3]])  # type: ignore[attr-defined]
    assert fingerprint(other.batches(8)) != fingerprint(files.batches(8))


def test_a_text_that_every_row_has_keeps_its_length_in_a_description(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.array([b"12345", b"a"]))
    loader = ooc.stack([ooc.open(tmp_path / "a.npy"), np.array(b"zz", "S5")]).batches(2)
    again: Any = from_json(as_json(loader))
    assert fingerprint(again) == fingerprint(loader)
    assert_array_equal(again.batch(0), [[b"12345", b"zz"], [b"a", b"zz"]])


def test_workers_and_ranks_and_resume(files: ooc.View) -> None:
    plain = files.next_frame().batches(8, shuffle=True, seed=2)
    loader = files.next_frame().batches(8, shuffle=True, seed=2, workers=1)
    for one, other in zip(loader.epoch(1, start=2), plain.epoch(1, start=2), strict=True):
        assert_array_equal(one[1], other[1])
    halves = [plain.shard(2, index).batch(1) for index in range(2)]
    assert_array_equal(np.concatenate([half[0] for half in halves]), plain.batch(1)[0])


def test_a_part_that_changes_is_an_error(files: ooc.View, tmp_path: Path) -> None:
    files.take([3])
    np.save(tmp_path / "u.npy", np.zeros((40, 6, 4), "f4"))
    with pytest.raises(SourceError, match=r"u\.npy"):
        files.take([3])


def test_storage_and_explain(files: ooc.View, tmp_path: Path) -> None:
    storage = files.storage
    assert storage.path == f"{tmp_path / 'u.npy'} and 1 more"
    assert storage.key == "/v"
    assert {Path(file.path).name for file in storage.files} == {"u.npy", "v.h5"}
    assert "u.npy and 1 more" in str(files.batches(4).explain())
    assert isinstance(files.source, Source)
    assert not isinstance(files.source, Chunked)


@pytest.mark.parametrize("call", [ooc.stack, ooc.concatenate], ids=["stack", "concatenate"])
def test_dates_of_several_units(call: Any) -> None:
    hours = np.arange("2020-01-01", "2020-01-03", dtype="M8[h]").reshape(12, 4)
    dates = [ooc.open(hours.astype(unit)) for unit in ("M8[s]", "M8[s]", "M8[h]")]
    assert call(dates[:2]).unit == "datetime64[s]"
    message = r"dates of one unit; got datetime64\[s\], datetime64\[h\]\. .*ooc\.zip"
    with pytest.raises(ArgumentError, match=message):
        call(dates[1:])
    with pytest.raises(ArgumentError, match=r"got datetime64\[s\], none"):
        call([dates[0], ooc.open(np.zeros((12, 4), "i8"))])
    as_numbers = call([dates[0].astype("f8"), ooc.open(np.zeros((12, 4)))])
    assert as_numbers.take([3]).reshape(-1).max() == hours[3, 3].astype("M8[s]").astype("f8")


@pytest.mark.parametrize("combine", [ooc.stack, ooc.concatenate])
def test_decoded_and_packed_numbers_are_not_combined(tmp_path: Path, combine: Any) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        for name, scale in (("t", 0.5), ("u", 0.25)):
            file.create_dataset(name, data=np.arange(8, dtype="i2").reshape(4, 2))
            file[name].attrs["scale_factor"] = scale
    decoded, packed = [
        [ooc.open(tmp_path / "a.h5", name, decode=decode) for name in "tu"]
        for decode in (True, False)
    ]
    with pytest.raises(ArgumentError, match=r"`\w+` must get parts that are all decoded.*scale_f"):
        combine([decoded[0], packed[1]])
    numpy: Any = getattr(np, combine.__name__)
    assert_array_equal(combine(decoded)[1], numpy([[1, 1.5], [0.5, 0.75]], -1))
    assert_array_equal(combine(packed)[1], numpy([[2, 3], [2, 3]], -1))
