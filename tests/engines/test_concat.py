"""Concatenation of several arrays."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal
from recording import RecordingSource

import oocdata as ooc
from oocdata.box import Extent
from oocdata.datasets.view import View
from oocdata.engines import copying
from oocdata.engines.concat import Concat, concatenate
from oocdata.engines.memory_array import MemoryArray
from oocdata.engines.source import Source
from oocdata.errors import MismatchedPartsError
from oocdata.formats.npy import open_npy
from oocdata.testing import SourceConformance, boxes_of, sample_array


class TestAlongAnInnerAxis(SourceConformance):
    def make(self, folder: Path, array: np.ndarray) -> Source:
        axis = array.ndim - 1
        parts = np.split(array, [1, array.shape[axis] - 1], axis)
        return concatenate([MemoryArray(part) for part in parts], axis)


@given(st.data())
def test_any_parts(data: st.DataObject) -> None:
    shape = tuple(data.draw(st.integers(1, 9)) for _ in range(data.draw(st.integers(1, 3))))
    axis = data.draw(st.integers(0, len(shape) - 1))
    array = sample_array(shape)
    borders = sorted(data.draw(st.lists(st.integers(0, shape[axis]), max_size=5)))
    source = concatenate([MemoryArray(part) for part in np.split(array, borders, axis)], axis)
    assert source.shape == shape
    strides = tuple(data.draw(st.integers(1, 3)) for _ in shape)
    lengths = tuple(
        data.draw(st.integers(1, (n - 1) // s + 1)) for n, s in zip(shape, strides, strict=True)
    )
    extent = Extent(lengths, strides)
    origin = st.tuples(*[st.integers(0, n - s) for n, s in zip(shape, extent.spans, strict=True)])
    origins = np.array(data.draw(st.lists(origin, min_size=1, max_size=9)))
    out = np.empty((len(origins), *lengths), data.draw(st.sampled_from(["f4", "f8"])))
    source.read(origins, extent, out)
    assert_array_equal(out, boxes_of(array, origins, extent))


def test_each_part_is_read_once() -> None:
    parts = [RecordingSource(sample_array((4, 2)) + 100 * n) for n in range(3)]
    view = View.of(concatenate(parts, 0))
    view.take([9, 0, 1, 11, 3, 0])
    assert [part.rows for part in parts] == [[[0, 1, 3, 0]], [], [[1, 3]]]


def test_a_box_across_parts_is_read_from_each() -> None:
    parts = [RecordingSource(sample_array((3, 2)) + 100 * n) for n in range(4)]
    whole = np.concatenate([part.array for part in parts])
    out = np.empty((2, 4, 2), "f4")
    concatenate(parts, 0).read(np.array([[1, 0], [0, 0]]), Extent((4, 2), (2, 1)), out)
    assert_array_equal(out, [whole[1:8:2], whole[0:7:2]])
    assert [sorted(part.rows) for part in parts] == [[[0, 2], [1]], [[0, 2], [1]], [[0], [1]], []]


def test_boxes_of_the_same_start_are_read_together() -> None:
    parts = [RecordingSource(sample_array((5, 2)) + 100 * n) for n in range(3)]
    whole = np.concatenate([part.array for part in parts], 1)
    out = np.empty((4, 1, 3), "f4")
    origins = np.array([[4, 1], [0, 2], [3, 1], [1, 1]])
    concatenate(parts, 1).read(origins, Extent.of((1, 3)), out)
    assert_array_equal(out[:, 0], [whole[row, at : at + 3] for row, at in origins])
    assert [sorted(part.rows) for part in parts] == [[[4, 3, 1]], [[0], [4, 3, 1]], [[0]]]


def test_boxes_cut_at_the_same_place_are_read_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows over many short files: a read for each place of a cut, not for each window."""
    parts = [RecordingSource(sample_array((5, 2)) + 100 * n) for n in range(40)]
    whole = np.concatenate([part.array for part in parts])
    source = Concat(tuple(parts), 0)
    reads: list[int] = []
    read = Concat._read_within_parts

    def counting(self: Concat, boxes: Any, *arguments: Any) -> None:
        reads.append(len(boxes))
        read(self, boxes, *arguments)

    monkeypatch.setattr(Concat, "_read_within_parts", counting)
    origins = np.stack([np.arange(180), np.zeros(180, int)], axis=1)
    out = np.empty((180, 12, 2), "f4")
    source.read(origins, Extent.of((12, 2)), out)
    assert_array_equal(out, whole[np.arange(180)[:, None] + np.arange(12)])
    assert reads == [36] * 16  # five places in a part to begin at: four lie in three, one in four


def test_ten_thousand_parts_take_no_loop() -> None:
    asked = []

    class Part:
        shape, dtype = (2, 3), np.dtype("i8")

        def __init__(self, number: int) -> None:
            self.number = number

        def read(self, origins: np.ndarray, extent: Extent, out: np.ndarray) -> None:
            asked.append(self.number)
            out[...] = self.number

        def storage(self) -> Any:
            return MemoryArray(np.zeros(3)).storage()

    source = concatenate([Part(n) for n in range(10_000)], 0)
    rows = np.random.default_rng(0).integers(0, 20_000, 32)
    assert_array_equal(View.of(source).take(rows)[:, 0], rows // 2)
    assert sorted(asked) == sorted(set((rows // 2).tolist()))


@pytest.mark.parametrize("scratch", [1, 30, 1 << 20])
def test_scattered_rows_pass_through_scratch_memory(
    monkeypatch: pytest.MonkeyPatch, scratch: int
) -> None:
    monkeypatch.setattr(copying, "_SCRATCH_BYTES", scratch)
    array = sample_array((40, 3))
    source = concatenate([MemoryArray(array[:20]), MemoryArray(array[20:])], 0)
    rows = np.random.default_rng(0).permutation(40)
    assert_array_equal(View.of(source).take(rows), array[rows])


def test_one_part_is_itself() -> None:
    source = MemoryArray(sample_array((4, 2)))
    assert concatenate([source], 0) is source
    assert concatenate([MemoryArray(sample_array((0, 2))), source], 0) is source


def test_parts_of_parts_are_parts() -> None:
    array = sample_array((10, 2))
    sources = [MemoryArray(part) for part in np.split(array, [3, 5, 9])]
    source = concatenate([concatenate(sources[:2], 0), concatenate(sources[2:], 0)], 0)
    assert isinstance(source, Concat)
    assert source.storage().parts == (0, 3, 5, 9)
    assert_array_equal(np.asarray(View.of(source)), array)
    across = concatenate([concatenate(sources[1:2] * 2, 1), concatenate(sources[1:2] * 2, 1)], 0)
    assert len(across.parts) == 2  # type: ignore[attr-defined]
    assert across.storage().parts_axis == 0


@pytest.mark.parametrize(
    ("odd", "hint"),
    [
        (np.zeros((2, 3), "f8"), r"\.astype"),
        (np.zeros((2, 4), "f4"), r"view\[:, :8\]"),
        (np.zeros(2, "f4"), "Leave some out"),
    ],
    ids=["dtype", "width", "axes"],
)
def test_parts_of_other_shapes_are_refused(tmp_path: Path, odd: np.ndarray, hint: str) -> None:
    for number, array in enumerate([np.zeros((5, 3), "f4"), np.zeros((1, 3), "f4"), odd]):
        np.save(tmp_path / f"{number}.npy", array)
    with pytest.raises(
        MismatchedPartsError,
        match=rf"they have \(\*, 3\) float32 \(2 parts\) and .* \(1 part, the.*{hint}",
    ) as raised:
        concatenate([open_npy(str(tmp_path / f"{n}.npy")) for n in range(3)], 0)
    assert raised.value.path == str(tmp_path / "2.npy")


def test_byte_orders_may_differ() -> None:
    parts = [np.arange(3, dtype=">i4"), np.arange(3, 5, dtype="<i4")]
    source = concatenate([MemoryArray(part) for part in parts], 0)
    assert_array_equal(np.asarray(View.of(source)), range(5))


def test_storage(tmp_path: Path) -> None:
    for number in range(3):
        np.save(tmp_path / f"{number}.npy", np.zeros((5, 3)))
    source = concatenate([open_npy(str(tmp_path / f"{n}.npy")) for n in range(3)], 0)
    storage = source.storage()
    assert storage.path == f"{tmp_path / '0.npy'} and 2 more"
    assert storage.stored_bytes == 3 * 120
    assert (storage.parts, storage.parts_axis, storage.strides) == ((0, 5, 10), 0, None)
    paths = [str(tmp_path / f"{n}.npy") for n in range(3)]
    assert [file.path for file in storage.files] == paths
    assert storage.opened == {"target": paths}
    assert ooc.open(**storage.opened).shape == (15, 3)
    assert pickle.loads(pickle.dumps(source)).storage().parts == (0, 5, 10)


def test_arguments_that_open_several_arrays_of_a_file_again(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", u=np.zeros((5, 3)), v=np.ones((2, 3)))
    parts = [ooc.open(tmp_path / "a.npz", key).source for key in ("u", "v")]
    opened = concatenate(parts, 0).storage().opened
    assert opened == {"target": str(tmp_path / "a.npz"), "key": ["u", "v"]}
    other = MemoryArray(np.zeros((5, 3)))
    assert concatenate([parts[0], other], 0).storage().opened is None


@pytest.mark.parametrize("kind", ["nc", "zarr3"])
@pytest.mark.parametrize(
    ("odd", "said"),
    [
        ({"scale_factor": 0.25}, r"_FillValue -9, and here is scale_factor 0\.25, add_offset 1\.0"),
        ({"_FillValue": -8}, "_FillValue -9, and here is .*_FillValue -8"),
    ],
)
def test_parts_that_are_packed_differently(
    tmp_path: Path, kind: str, odd: dict[str, Any], said: str
) -> None:
    xarray = pytest.importorskip("xarray")
    values = np.arange(12.0).reshape(6, 2) + 1
    alike = {"dtype": "i2", "scale_factor": 0.5, "add_offset": 1.0, "_FillValue": -9}
    for name, packed in (("a", alike), ("b", {**alike, **odd}), ("c", alike)):
        data, encoding = xarray.Dataset({"u": (("time", "x"), values)}), {"u": packed}
        if kind == "nc":
            data.to_netcdf(tmp_path / f"{name}.nc", encoding=encoding)
        else:
            path = tmp_path / f"{name}.{kind}"
            data.to_zarr(path, zarr_format=3, consolidated=False, encoding=encoding)
    paths = [str(tmp_path / f"{name}.{kind}") for name in "abc"]
    assert ooc.open([paths[0], paths[2]]).shape == (12, 2)
    with pytest.raises(MismatchedPartsError, match=rf"{said}.*decode=True decodes.*b\.{kind}"):
        ooc.open(paths)
    decoded = ooc.open(paths, decode=True)
    np.testing.assert_array_equal(np.asarray(decoded), np.concatenate([values] * 3))
    engine = {} if kind == "nc" else {"engine": "zarr", "consolidated": False}
    shown = ooc.open([xarray.open_dataset(path, **engine)["u"] for path in paths])
    np.testing.assert_array_equal(np.asarray(shown), np.concatenate([values] * 3))
