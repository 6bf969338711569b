"""Rows at byte offsets: which bytes are asked for, in how many requests, and faults."""

from __future__ import annotations

import errno
import os
import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import close_handles
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from oocdata.datasets.view import View
from oocdata.errors import MissingFileError, SourceError, TruncatedFileError
from oocdata.sources import pieces
from oocdata.sources.extents import Extents, FileStamp, contiguous_strides
from oocdata.sources.npy import open_npy, open_raw
from oocdata.testing import SourceConformance, sample_array


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """Record (offset, bytes) of every request to the kernel."""
    seen: list[tuple[int, int]] = []
    real = os.preadv

    def preadv(number: int, buffers: Any, offset: int, *flags: int) -> int:
        seen.append((offset, sum(len(buffer) for buffer in buffers)))
        return real(number, buffers, offset, *flags)

    monkeypatch.setattr(os, "preadv", preadv)
    return seen


def saved(folder: Path, array: np.ndarray) -> Extents:
    """Return the source of rows that are read one by one, however small they are."""
    (folder / "a.bin").write_bytes(array.tobytes())
    source = open_raw(str(folder / "a.bin"), dtype=array.dtype, shape=array.shape)
    assert isinstance(source, Extents)
    return replace(source, kept=None)


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([0, 1, 2, 3], [(0, 48)]),
        ([3, 4, 9, 10, 0], [(36, 24), (108, 24), (0, 12)]),
        ([2, 1, 0], [(24, 12), (12, 12), (0, 12)]),
        ([5, 5, 6], [(60, 12), (60, 24)]),
        ([], []),
    ],
    ids=str,
)
def test_neighbours_are_joined(tmp_path: Path, requests: Any, rows: Any, expected: Any):
    array = sample_array((20, 3))
    source = saved(tmp_path, array)
    assert_array_equal(SourceConformance().read(source, rows), array[np.array(rows, int)])
    assert requests == expected


def test_a_cut_asks_for_its_bytes_alone(tmp_path: Path, requests: Any):
    array = sample_array((10, 100, 50))
    view = View.of(saved(tmp_path, array))
    assert_array_equal(view[:, 7].take([2]), array[[2], 7])
    assert requests == [(2 * 20000 + 7 * 200, 200)]
    requests.clear()
    assert_array_equal(view[:, 3:5, :].take([0]), array[[0], 3:5])
    assert requests == [(600, 400)]
    requests.clear()
    # Far apart: one request for each run; close together: one for all, holes too.
    assert_array_equal(view[:, ::40, :3].take([1]), array[[1], ::40, :3])
    assert requests == [(20000 + line * 200, 12) for line in (0, 40, 80)]
    requests.clear()
    assert_array_equal(view[:, 5, ::-2].take([1]), array[[1], 5, ::-2])
    assert requests == [(20000 + 1000 + 4, 196)]


def test_a_batch_of_any_size_is_read(tmp_path: Path):
    array = sample_array((5000, 7), "<i4")
    view = View.of(saved(tmp_path, array))
    rows = np.random.default_rng(0).integers(0, 5000, 100_000)
    assert_array_equal(view.take(rows), array[rows])
    assert_array_equal(view[:, ::-1].astype("f8").take(rows), array[rows, ::-1])


@pytest.mark.parametrize("scratch", [1, 100, 1 << 20])
def test_scratch_of_any_size(tmp_path: Path, monkeypatch: Any, scratch: int):
    monkeypatch.setattr(pieces, "_SCRATCH_BYTES", scratch)
    array = np.asfortranarray(sample_array((40, 5, 6), ">i4"))
    np.save(tmp_path / "a.npy", array)
    source = open_npy(str(tmp_path / "a.npy"))
    rows = np.random.default_rng(0).integers(0, 40, 77)
    assert_array_equal(SourceConformance().read(source, rows), array[rows])


@pytest.mark.parametrize("most", [1, 3, 1000])
def test_short_reads_go_on(tmp_path: Path, monkeypatch: Any, most: int):
    array = sample_array((20, 30), ">f4")
    source = saved(tmp_path, array)
    real = os.preadv
    monkeypatch.setattr(
        os, "preadv", lambda number, buffers, offset: real(number, [buffers[0][:most]], offset)
    )
    assert_array_equal(SourceConformance().read(source, [3, 4, 0]), array[[3, 4, 0]])


@pytest.mark.parametrize("how", ["plain", "sliced", "transposed", "converting", "read-only"])
def test_out_of_any_kind(tmp_path: Path, how: str):
    array = sample_array((10, 4, 4), "<i4")
    source = saved(tmp_path, array)
    rows = np.array([7, 0, 7])
    if how == "sliced":
        out: np.ndarray = np.zeros((6, 4, 8), "i4")[::2, :, 1::2]
    elif how == "transposed":
        out = np.zeros((3, 4, 4), "i4").swapaxes(1, 2)
    else:
        out = np.zeros((3, 4, 4), "f8" if how == "converting" else "i4")
    if how == "read-only":
        out.flags.writeable = False
        with pytest.raises((ValueError, TypeError, BufferError), match=r"read-?only|not writable"):
            source.read_into(rows, out)
        assert not out.any()
        return
    source.read_into(rows, out)
    assert_array_equal(out, array[rows])


STEPS = st.sampled_from([1, 2, 3, -1, -2])


@given(
    st.tuples(st.integers(1, 6), st.integers(1, 5), st.integers(1, 5), st.integers(1, 40)),
    st.permutations(range(4)),
    st.tuples(STEPS, STEPS, STEPS, STEPS),
    st.sampled_from(["<i4", ">i4", "u1"]),
    st.data(),
)
def test_every_arrangement_of_strides(
    tmp_path_factory: pytest.TempPathFactory,
    shape: tuple[int, ...],
    axes: Any,
    steps: Any,
    dtype: str,
    data: st.DataObject,
):
    array = sample_array(shape, dtype)
    source = saved(tmp_path_factory.mktemp("strides"), array)
    source = source.with_row_axis(axes[0])
    oracle = np.moveaxis(array, axes[0], 0)
    key = tuple(
        data.draw(st.one_of(st.just(slice(None, None, step)), st.just(-1))) for step in steps[1:]
    )
    rows = np.array(data.draw(st.lists(st.integers(0, len(oracle) - 1), min_size=1, max_size=5)))
    view = View.of(source)[(slice(None), *key)]
    assert_array_equal(view.take(rows), oracle[(slice(None), *key)][rows])


def test_strides_of_nothing():
    assert contiguous_strides((), 4) == ()
    assert contiguous_strides((0, 3), 4) == (12, 4)


# --- files that change


def test_a_file_cut_short_while_it_is_open(tmp_path: Path):
    source = saved(tmp_path, sample_array((100, 25)))
    assert SourceConformance().read(source, [99])[0, 0] == 99 * 25
    os.truncate(tmp_path / "a.bin", 5050)
    with pytest.raises(TruncatedFileError, match=r"hold 10000 bytes.*ends at 5050.*row 50\]"):
        SourceConformance().read(source, [50])
    with pytest.raises(TruncatedFileError) as raised:
        SourceConformance().read(source, [3, 48, 49, 50, 51, 52])
    assert raised.value.rows == (50, 51, 52)
    # What is left may be the start of another array: not even that is delivered.
    with pytest.raises(TruncatedFileError, match=r"rows 3, 4\]"):
        SourceConformance().read(source, [3, 4])
    assert raised.value.path == str(tmp_path / "a.bin")


def test_a_file_cut_short_before_it_is_read(tmp_path: Path):
    source = saved(tmp_path, sample_array((100, 25)))
    os.truncate(tmp_path / "a.bin", 5050)
    with pytest.raises(TruncatedFileError, match="5050"):
        SourceConformance().read(source, [0])


@pytest.mark.parametrize("read_first", [True, False])
def test_a_file_that_is_replaced_is_never_read_as_the_old_one(tmp_path: Path, read_first: bool):
    """Same length, other dtype: read with the old header, every number would be wrong."""
    np.save(tmp_path / "a.npy", np.arange(100, dtype="<i4"))
    source = open_npy(str(tmp_path / "a.npy"))
    if read_first:
        assert SourceConformance().read(source, [7]) == [7]
    np.save(tmp_path / "b.npy", np.arange(100, dtype="<f4"))
    os.utime(tmp_path / "b.npy", ns=(1, 1))
    os.replace(tmp_path / "b.npy", tmp_path / "a.npy")
    if read_first:  # the descriptor is still of the old file
        assert SourceConformance().read(source, [7]) == [7]
        close_handles()  # as when thousands of other files were read in between
    with pytest.raises(SourceError, match=r"changed.*Open it again.*a\.npy"):
        SourceConformance().read(source, [7])
    assert SourceConformance().read(open_npy(str(tmp_path / "a.npy")), [7]) == [7.0]


def test_a_file_that_is_deleted(tmp_path: Path):
    source = saved(tmp_path, sample_array((10, 2)))
    (tmp_path / "a.bin").unlink()
    with pytest.raises(MissingFileError, match="it is gone"):
        SourceConformance().read(source, [0])


def test_a_file_that_is_deleted_while_it_is_open(tmp_path: Path):
    source = saved(tmp_path, sample_array((10, 2)))
    SourceConformance().read(source, [0])
    (tmp_path / "a.bin").unlink()
    assert SourceConformance().read(source, [4]).tolist() == [[8, 9]]


def test_a_symlink_that_is_turned(tmp_path: Path):
    for name, dtype in (("a", "<i4"), ("b", "<f4")):
        np.save(tmp_path / f"{name}.npy", np.arange(9, dtype=dtype))
    os.utime(tmp_path / "b.npy", ns=(1, 1))
    (tmp_path / "link.npy").symlink_to("a.npy")
    source = open_npy(str(tmp_path / "link.npy"))
    (tmp_path / "link.npy").unlink()
    (tmp_path / "link.npy").symlink_to("b.npy")
    with pytest.raises(SourceError, match="Open it again"):
        SourceConformance().read(source, [7])


def test_a_disk_error_names_file_and_rows(tmp_path: Path, monkeypatch: Any):
    source = saved(tmp_path, sample_array((10, 2)))

    def preadv(*_: Any) -> int:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "preadv", preadv)
    with pytest.raises(SourceError, match=r"could not be read.*a\.bin', rows 3, 4\]") as raised:
        SourceConformance().read(source, [3, 4, 9])
    assert isinstance(raised.value.__cause__, OSError)


def test_a_file_that_may_not_be_read(tmp_path: Path, monkeypatch: Any):
    source = saved(tmp_path, sample_array((10, 2)))

    def refuse(*_: Any, **__: Any) -> int:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(SourceError, match=r"Permission denied.*a\.bin"):
        SourceConformance().read(source, [0])


def test_the_path_is_absolute_so_the_folder_may_change(tmp_path: Path, monkeypatch: Any):
    saved(tmp_path, sample_array((10, 2)))
    monkeypatch.chdir(tmp_path)
    source = open_raw("a.bin", dtype="<f4", shape=(10, 2))
    monkeypatch.chdir("/")
    assert SourceConformance().read(source, [1]).tolist() == [[2, 3]]


def test_equal_descriptions_are_equal(tmp_path: Path):
    source = saved(tmp_path, sample_array((10, 2)))
    again = open_raw(str(tmp_path / "a.bin"), dtype="<f4", shape=(10, 2))
    assert source == again == pickle.loads(pickle.dumps(source))
    assert hash(source) == hash(again)
    assert FileStamp.of(str(tmp_path / "a.bin")) == source.file


def test_a_file_written_over_in_place_is_noticed(tmp_path: Path) -> None:
    """As by running the cell of a notebook again: the bytes are those of another array."""
    path = tmp_path / "a.npy"
    np.save(path, np.ones((100, 4), "f4"))
    view = View.of(open_npy(str(path)))
    view.take([3])
    os.utime(path, ns=(0, 0))  # clocks may be coarser than this test is fast
    np.save(path, np.full((100, 8), 4.0))
    with pytest.raises(SourceError, match=r"has changed\. Open it again\. .*rows 3, 4"):
        view.take([3, 4])
    assert_array_equal(View.of(open_npy(str(path))).take([3]), np.full((1, 8), 4.0))


def test_a_file_written_over_during_a_read_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.npy"
    np.save(path, np.ones((100, 4), "f4"))
    view = View.of(open_npy(str(path)))
    real = os.preadv

    def while_another_writes(number: int, buffers: Any, offset: int) -> int:
        got = real(number, buffers, offset)
        np.save(path, np.full((100, 4), 2, "f4"))
        os.utime(path, ns=(0, 0))
        return got

    monkeypatch.setattr(os, "preadv", while_another_writes)
    with pytest.raises(SourceError, match=r"has changed\. Open it again"):
        view.take([3])
