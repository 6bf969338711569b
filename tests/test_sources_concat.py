"""Several arrays as one along the rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

import oocdata as ooc
from oocdata.datasets.view import View
from oocdata.errors import ArgumentError, MismatchedPartsError
from oocdata.sources.adapt import Converted
from oocdata.sources.concat import Concat, concatenate
from oocdata.sources.memory import Memory
from oocdata.sources.npy import open_npy
from oocdata.sources.source import Source
from oocdata.testing import RecordingSource, SourceConformance, sample_array


def parts_of(array: np.ndarray, lengths: list[int]) -> list[np.ndarray]:
    return np.split(array, np.cumsum(lengths)[:-1])


class TestFiles(SourceConformance):
    def make(self, folder: Path, array: np.ndarray, axis: int = 0) -> Source:
        moved = np.moveaxis(array, axis, 0)
        cuts = [len(moved) // 4, len(moved) // 4, len(moved) // 4 + 1]
        for number, part in enumerate(np.split(moved, cuts)):
            np.save(folder / f"{number}.npy", np.moveaxis(part, 0, axis))
        return concatenate([open_npy(str(folder / f"{n}.npy"), axis=axis) for n in range(4)])


class TestSourcesThatDoNotConvertOrCut(SourceConformance):
    """Beside one that does: each part is read by its own way."""

    def make(self, folder: Path, array: np.ndarray, axis: int = 0) -> Source:
        moved = np.moveaxis(array, axis, 0)
        return concatenate([Plain(moved[:5]), Memory(moved[5:6]), Plain(moved[6:])])


class Plain:
    """The least that a source can be."""

    converts = False
    chunk_rows = 1

    def __init__(self, array: np.ndarray) -> None:
        self.array = array
        self.shape = array.shape
        self.dtype = array.dtype

    def read_into(self, rows: np.ndarray, out: np.ndarray) -> None:
        assert out.flags.c_contiguous
        assert out.dtype == self.dtype
        assert out.shape == (len(rows), *self.shape[1:])
        assert rows.dtype == np.int64
        out[...] = self.array[rows]


class TestPlain(SourceConformance):
    def make(self, folder: Path, array: np.ndarray, axis: int = 0) -> Source:
        return Plain(np.moveaxis(array, axis, 0))  # type: ignore[return-value]


@given(st.lists(st.integers(0, 4), min_size=1, max_size=6), st.data())
def test_any_parts_in_any_order(lengths: list[int], data: st.DataObject):
    array = sample_array((sum(lengths), 3))
    source = concatenate([Memory(part) for part in parts_of(array, lengths)])
    assert source.shape == array.shape
    rows = data.draw(st.lists(st.integers(0, len(array) - 1)) if len(array) else st.just([]))
    view = View.of(source)
    assert_array_equal(view.take(rows), array[np.array(rows, int)])
    assert_array_equal(
        view.astype("f8")[::-1, ::-2].take(rows), array[::-1, ::-2][np.array(rows, int)]
    )


def test_each_part_is_asked_once_for_its_rows():
    parts = [RecordingSource(sample_array((4, 2)) + 100 * n) for n in range(3)]
    view = View.of(concatenate(parts))
    view.take([9, 0, 1, 11, 3, 0])
    assert [part.reads for part in parts] == [[[0, 1, 3, 0]], [], [[1, 3]]]


def test_one_part_is_itself():
    source = Memory(sample_array((4, 2)))
    assert concatenate([source]) is source


def test_parts_of_parts_are_parts():
    array = sample_array((10, 2))
    sources = [Memory(part) for part in parts_of(array, [3, 2, 4, 1])]
    source = concatenate([concatenate(sources[:2]), concatenate(sources[2:])])
    assert isinstance(source, Concat)
    assert source.part_starts == (0, 3, 5, 9)
    assert_array_equal(np.asarray(View.of(source)), array)


@pytest.mark.parametrize(
    "odd", [np.zeros((2, 3), "f8"), np.zeros((2, 4), "f4"), np.zeros(2, "f4")], ids=str
)
def test_parts_that_do_not_fit(tmp_path: Path, odd: np.ndarray):
    for number, array in enumerate([np.zeros((5, 3), "f4"), np.zeros((1, 3), "f4"), odd]):
        np.save(tmp_path / f"{number}.npy", array)
    with pytest.raises(
        MismatchedPartsError, match=r"part 0 has \(3,\) float32, part 2 has"
    ) as raised:
        concatenate([open_npy(str(tmp_path / f"{n}.npy")) for n in range(3)])
    assert raised.value.path == str(tmp_path / "2.npy")


def test_byte_orders_may_differ():
    parts = [np.arange(3, dtype=">i4"), np.arange(3, 5, dtype="<i4")]
    assert_array_equal(np.asarray(View.of(concatenate([Memory(p) for p in parts]))), range(5))


@pytest.mark.parametrize(
    "change",
    [
        lambda view: view,
        lambda view: view.astype("f8"),
        lambda view: view[:, :1],
        lambda view: view.astype("f8")[:, 0].astype("f4"),
    ],
)
def test_files_are_episodes_whatever_is_done_to_their_rows(change):
    array = sample_array((10, 2))
    for kind in (Memory, Plain):
        sources = [kind(part) for part in parts_of(array, [3, 0, 2, 5])]
        view = change(View.of(concatenate(sources)))
        starts = view.windows(2, episodes="files")
        assert [int(x[0].flat[0]) for x in (starts[i] for i in range(len(starts)))] == [
            0, 2, 6, 10, 12, 14, 16,
        ]  # fmt: skip
        assert len(view[1:7].windows(2, episodes="files")) == 3
        assert len(view[::-1].windows(2, episodes="files")) == 7
        assert len(view[7::-2].windows(2, episodes="files")) == 1
        assert len(view[[0, 1, 2, 5, 6]].windows(2, episodes="files")) == 3
        with pytest.raises(ArgumentError, match="side by side"):
            view[[0, 5, 1]].windows(1, episodes="files")


def test_one_file_is_one_episode():
    assert len(View.of(Memory(sample_array((10, 2)))).windows(2, episodes="files")) == 9


def test_conversion_of_what_does_not_convert():
    array = sample_array((10, 3))
    source = Converted(Plain(array), np.dtype("f8"))  # type: ignore[arg-type]
    out = np.empty((2, 3))
    source.read_into(np.array([7, 2]), out)
    assert_array_equal(out, array[[7, 2]])


def test_what_it_says_of_itself(tmp_path: Path):
    for number in range(3):
        np.save(tmp_path / f"{number}.npy", np.zeros((5, 3)))
    source = concatenate([open_npy(str(tmp_path / f"{n}.npy")) for n in range(3)])
    assert isinstance(source, Concat)
    layout = source.layout()
    assert layout.path == f"{tmp_path / '0.npy'} and 2 more"
    assert layout.stored_bytes == 3 * 120


@pytest.mark.parametrize("kind", ["nc", "zarr2", "zarr3"])
@pytest.mark.parametrize(
    ("odd", "said"),
    [
        ({"scale_factor": 0.25}, r"_FillValue -9, part 1 has scale_factor 0\.25, add_offset 1\.0"),
        ({"_FillValue": -8}, "_FillValue -9, part 1 has .*_FillValue -8"),
    ],
)
def test_parts_that_are_packed_differently(
    tmp_path: Path, kind: str, odd: dict[str, Any], said: str
):
    xarray = pytest.importorskip("xarray")
    values = np.arange(12.0).reshape(6, 2) + 1
    alike = {"dtype": "i2", "scale_factor": 0.5, "add_offset": 1.0, "_FillValue": -9}
    for name, packed in (("a", alike), ("b", {**alike, **odd}), ("c", alike)):
        data, encoding = xarray.Dataset({"u": (("time", "x"), values)}), {"u": packed}
        if kind == "nc":
            data.to_netcdf(tmp_path / f"{name}.nc", encoding=encoding)
        else:
            version = int(kind[-1])
            path = tmp_path / f"{name}.{kind}"
            data.to_zarr(path, zarr_format=version, consolidated=False, encoding=encoding)
    paths = [str(tmp_path / f"{name}.{kind}") for name in "abc"]
    assert ooc.open([paths[0], paths[2]]).shape == (12, 2)
    with pytest.raises(MismatchedPartsError, match=rf"{said}.*through xarray.*b\.{kind}"):
        ooc.open(paths)
    engine = {} if kind == "nc" else {"engine": "zarr", "consolidated": False}
    shown = ooc.open([xarray.open_dataset(path, **engine)["u"] for path in paths])
    np.testing.assert_array_equal(np.asarray(shown), np.concatenate([values] * 3))
