"""Test `.npy`, raw binary and `.npz` files against NumPy."""

from __future__ import annotations

import io
import json
import os
import pickle
import struct
import tracemalloc
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from boxes import check_boxes
from hypothesis import given
from hypothesis import strategies as st
from numpy.lib import format as npy_format
from numpy.testing import assert_array_equal

import oocdata as ooc
from oocdata.datasets.view import View
from oocdata.engines.source import Source
from oocdata.engines.strided import Strided
from oocdata.errors import (
    ArgumentError,
    DamagedChunkError,
    MissingKeyError,
    OocdataError,
    SeveralDatasetsError,
    TrailingBytesError,
    TruncatedFileError,
    UnknownFormatError,
    UnsupportedDtypeError,
)
from oocdata.formats.npy import open_npy, open_raw
from oocdata.formats.npz import NpzTree
from oocdata.formats.opening import list_datasets, open_source
from oocdata.testing import SourceConformance, sample_array

BIG_ENDIAN = (">f4", ">f8", "|u1", ">i2", "|b1", ">c16", ">u8")


class TestNpy(SourceConformance):
    def make(self, folder: Path, array: np.ndarray) -> Source:
        np.save(folder / "a.npy", array)
        return open_npy(str(folder / "a.npy"))


class TestCompressedNpz(SourceConformance):
    def make(self, folder: Path, array: np.ndarray) -> Source:
        np.savez_compressed(folder / "a.npz", other=np.zeros(3), u=array, last=np.ones(2))
        return open_source(str(folder / "a.npz"), "u")


def fortran(path: Path, array: np.ndarray) -> Source:
    with open(path, "wb") as file:
        np.save(file, np.asfortranarray(array))
    return open_npy(str(path))


def version_3(path: Path, array: np.ndarray) -> Source:
    with open(path, "wb") as file:
        npy_format.write_array(file, array, version=(3, 0))
    return open_npy(str(path))


def offset_that_is_aligned_to_nothing(path: Path, array: np.ndarray) -> Source:
    header = repr({"descr": array.dtype.str, "fortran_order": False, "shape": array.shape})
    encoded = (header + " " * 3 + "\n").encode()
    start = b"\x93NUMPY\x02\x00" + struct.pack("<I", len(encoded))
    path.write_bytes(start + encoded + array.tobytes())
    return open_npy(str(path))


def raw(path: Path, array: np.ndarray) -> Source:
    path.write_bytes(b"x" * 13 + array.tobytes())
    return open_raw(str(path), dtype=array.dtype, shape=array.shape, offset=13)


def archive(path: Path, array: np.ndarray) -> Source:
    with open(path, "wb") as file:
        np.savez(file, other=np.zeros(3), u=array, last=np.ones(2))
    return open_source(str(path), "u")


def archive_behind_other_bytes(path: Path, array: np.ndarray) -> Source:
    """Write an archive after other bytes: a ZIP archive may begin anywhere in its file."""
    inside = io.BytesIO()
    np.savez(inside, u=array)
    path.write_bytes(b"#!" + b"-" * 99 + inside.getvalue())
    return open_npz(str(path))


def compressed_fortran_archive(path: Path, array: np.ndarray) -> Source:
    with open(path, "wb") as file:
        np.savez_compressed(file, u=np.asfortranarray(array))
    return open_source(str(path), "u")


@pytest.mark.parametrize(
    "store",
    [
        fortran,
        version_3,
        offset_that_is_aligned_to_nothing,
        raw,
        archive,
        archive_behind_other_bytes,
        compressed_fortran_archive,
    ],
)
def test_ways_of_storing(tmp_path: Path, store: Callable[[Path, np.ndarray], Source]):
    for dtype in ("<f4", *BIG_ENDIAN):
        array = sample_array((23, 3, 5, 4), dtype)
        check_boxes(store(tmp_path / dtype.strip("|"), array), array)


@pytest.mark.parametrize("shape", [(0,), (0, 3), (5, 0), (5, 0, 3), (0, 0)], ids=str)
def test_arrays_without_elements(tmp_path: Path, shape: tuple[int, ...]):
    for array in (np.zeros(shape, "f4"), np.zeros(shape, "f4", order="F")):
        np.save(tmp_path / "a.npy", array)
        view = View.of(open_npy(str(tmp_path / "a.npy")))
        assert view.shape == shape
        assert np.asarray(view).shape == shape
        assert view.take([0] * min(shape[0], 1)).shape == (min(shape[0], 1), *shape[1:])
        assert view[::-1].shape == shape


def test_rows_of_one_number(tmp_path: Path):
    np.save(tmp_path / "a.npy", np.arange(10, dtype=">i2"))
    view = View.of(open_npy(str(tmp_path / "a.npy")))
    assert view[3] == 3
    assert view[3].dtype == np.dtype("i2")
    assert view[3].dtype.isnative
    assert_array_equal(view[::-3].take([0, 1]), [9, 6])
    with pytest.raises(ArgumentError, match="at most 1 axes"):
        view[0, 0]


@pytest.mark.parametrize("length", [0, 5, 6, 9, 50, 100, 127, 128, 129, 200, -1])
def test_cut_short(tmp_path: Path, length: int):
    np.save(tmp_path / "a.npy", np.arange(100.0))
    whole = (tmp_path / "a.npy").read_bytes()
    (tmp_path / "a.npy").write_bytes(whole[:length])
    kind = UnknownFormatError if 0 <= length < 128 else TruncatedFileError
    with pytest.raises(kind, match="must") as raised:
        open_npy(str(tmp_path / "a.npy"))
    assert raised.value.path == str(tmp_path / "a.npy")
    if kind is TruncatedFileError:
        nbytes = (len(whole) + length) % len(whole) - 128
        message = f"800 bytes of numbers (shape (100,), <f8); got {nbytes}"
        assert message in str(raised.value)


def test_trailing_bytes(tmp_path: Path):
    with open(tmp_path / "a.npy", "wb") as file:
        np.save(file, np.arange(10))
        np.save(file, np.arange(10))  # two `numpy.load` calls on an open file read both arrays
    with pytest.raises(TrailingBytesError, match="got 208 more"):
        open_npy(str(tmp_path / "a.npy"))


@pytest.mark.parametrize(
    "array",
    [
        np.array([{}, None], object),
        np.zeros(3, np.longdouble),
        np.zeros(3, np.clongdouble),
        np.zeros(3, "V4"),
    ],
    ids=lambda array: str(array.dtype),
)
def test_dtypes_that_batches_cannot_hold(tmp_path: Path, array: np.ndarray):
    np.save(tmp_path / "a.npy", array, allow_pickle=True)
    with pytest.raises(UnsupportedDtypeError, match="elements must be") as raised:
        open_npy(str(tmp_path / "a.npy"))
    assert "a.npy" in str(raised.value)


def test_a_structured_array_names_its_fields(tmp_path: Path):
    np.save(tmp_path / "a.npy", np.zeros(3, [("speed", "f4"), ("time", "i4")]))
    view = View.of(open_npy(str(tmp_path / "a.npy")))
    assert view["time"].dtype == np.int32
    with pytest.raises(UnsupportedDtypeError, match=r"fields .*'speed', 'time'.*a\.npy"):
        view.batches(2)


@pytest.mark.filterwarnings("ignore:Stored array in format 3.0")
@pytest.mark.parametrize("member", [None, "u"])
def test_names_of_fields_that_are_not_latin(tmp_path: Path, member: str | None):
    """NumPy writes such names in UTF-8, in version 3 of the format."""
    array = np.zeros(3, [("温度", "<f4"), ("é", [("\\ß", ">i2")])])
    array["温度"], array["é"]["\\ß"] = [1, 2, 3], [4, 5, 6]
    if member is None:
        np.save(tmp_path / "a.npy", array)
        assert (tmp_path / "a.npy").read_bytes()[6] == 3
        view = ooc.open(tmp_path / "a.npy")
    else:
        np.savez_compressed(tmp_path / "a.npz", u=array)
        view = ooc.open(tmp_path / "a.npz", member)
    assert_array_equal(np.asarray(view["温度"]), array["温度"])
    assert_array_equal(np.asarray(view["é"]["\\ß"]), array["é"]["\\ß"])


def test_a_single_number(tmp_path: Path):
    np.save(tmp_path / "a.npy", np.array(3.0))
    with pytest.raises(ArgumentError, match=r"row axis; got a single number .*\[file '.*a.npy'\]"):
        View.of(open_npy(str(tmp_path / "a.npy")))


@pytest.mark.parametrize("axis", [3, -4, 0.5, "0"])
def test_axes_that_are_not_there(tmp_path: Path, axis: Any):
    np.save(tmp_path / "a.npy", np.zeros((2, 3, 4)))
    with pytest.raises(ArgumentError, match=r"`axis` must be an axis of the 3-dimensional array"):
        open_npy(str(tmp_path / "a.npy"), axis=axis)


@pytest.mark.parametrize(
    "header",
    [
        "{'descr': '<f4', 'fortran_order': False, 'shape': (-1, -20)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (20,)",
        "{'descr': '<f4', 'fortran_order': 3, 'shape': (20,)}",
        "{'descr': 'nonsense', 'fortran_order': False, 'shape': (20,)}",
        "{'descr': '<f4', 'shape': (20,)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': 20}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (20.0,)}",
        "[]",
        "",
        "'''",
        "(((((",
        "__import__('os').abort()",
        "\x00\x01",
    ],
)
def test_headers_that_say_nonsense(tmp_path: Path, header: str):
    encoded = header.encode().ljust(117) + b"\n"
    (tmp_path / "a.npy").write_bytes(
        b"\x93NUMPY\x01\x00" + struct.pack("<H", len(encoded)) + encoded + bytes(80)
    )
    with pytest.raises(UnknownFormatError, match=r"the \.npy header must be readable"):
        open_npy(str(tmp_path / "a.npy"))


@pytest.mark.parametrize("nbytes", [10_001, 1 << 31])
def test_a_header_that_numpy_takes_for_too_long(tmp_path: Path, nbytes: int):
    with open(tmp_path / "a.npy", "wb") as file:
        file.write(b"\x93NUMPY\x02\x00" + struct.pack("<I", nbytes))
        file.write(b"{'descr': '<f4', 'fortran_order': False, 'shape': (2,)}".ljust(9_999))
        file.truncate(12 + nbytes + 8)  # sparse
    if nbytes == 10_001:
        with pytest.raises(ValueError, match="max_header_size"):
            np.load(tmp_path / "a.npy")
    tracemalloc.start()
    try:
        with pytest.raises(UnknownFormatError, match=rf"it has {nbytes:,} bytes, .* at most\. \[f"):
            open_npy(str(tmp_path / "a.npy"))
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def test_a_version_of_the_future(tmp_path: Path):
    (tmp_path / "a.npy").write_bytes(b"\x93NUMPY\x09\x00" + bytes(200))
    with pytest.raises(UnknownFormatError, match=r"version \(9, 0\)"):
        open_npy(str(tmp_path / "a.npy"))


@given(st.data())
def test_a_damaged_header_never_gives_anything_but_our_errors(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
):
    path = tmp_path_factory.mktemp("damaged") / "a.npy"
    np.save(path, np.arange(30, dtype="<i4").reshape(5, 6))
    content = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 3))):
        content[data.draw(st.integers(6, 127))] = data.draw(st.integers(0, 255))
    path.write_bytes(content)
    try:
        source = open_npy(str(path))
    except OocdataError:
        return
    assert np.asarray(View.of(source)).nbytes == 120 if source.shape else source.dtype.itemsize


# --- raw


def test_one_length_is_worked_out(tmp_path: Path):
    (tmp_path / "a.bin").write_bytes(bytes(4 + 2 * 3 * 8))
    source = open_raw(str(tmp_path / "a.bin"), dtype="f8", shape=(-1, 3), offset=4)
    assert source.shape == (2, 3)
    assert open_raw(str(tmp_path / "a.bin"), dtype="u1", shape=[-1]).shape == (52,)
    assert open_raw(str(tmp_path / "a.bin"), dtype="u1", shape=(2, np.int64(-1))).shape == (2, 26)


@pytest.mark.parametrize(
    ("options", "kind", "message"),
    [
        ({"shape": (-1, -1)}, ArgumentError, "at most one of them -1"),
        ({"shape": (-2, 3)}, ArgumentError, "`shape` must"),
        ({"shape": 10}, ArgumentError, "`shape` must"),
        ({"shape": (2.5, 4)}, ArgumentError, "`shape` must"),
        ({"shape": ("a",)}, ArgumentError, "`shape` must"),
        ({"shape": ()}, TrailingBytesError, "got 36 more"),
        ({"shape": (10,), "offset": -1}, ArgumentError, "`offset` must"),
        ({"shape": (10,), "offset": 1.5}, ArgumentError, "`offset` must"),
        ({"shape": (11,)}, TruncatedFileError, "must hold 44 bytes .* got 40"),
        ({"shape": (9,)}, TrailingBytesError, "got 4 more.*header, which `offset` skips"),
        ({"shape": (10,), "offset": 4}, TruncatedFileError, "must hold 40 bytes .* got 36"),
        ({"shape": (10,), "offset": 400}, TruncatedFileError, "`offset` must lie within the 40"),
        ({"shape": (-1,), "offset": 400}, TruncatedFileError, "offset"),
        ({"shape": (-1, 3)}, TrailingBytesError, "got 4 more"),
        ({"shape": (-1, 0)}, TrailingBytesError, "got 40 more"),
        ({"shape": (2**62, 2**62)}, TruncatedFileError, "must hold"),
    ],
    ids=str,
)
def test_raw_arguments(tmp_path: Path, options: dict[str, Any], kind: Any, message: str):
    (tmp_path / "a.bin").write_bytes(bytes(40))
    with pytest.raises(kind, match=message):
        open_raw(str(tmp_path / "a.bin"), dtype="f4", **options)


def test_a_billion_rows_without_a_byte_on_disk(tmp_path: Path):
    rows = 10**9 + 7
    with open(tmp_path / "a.bin", "wb") as file:
        file.truncate(rows * 12)
        for row in (0, 5 * 10**8, rows - 1):
            file.seek(row * 12)
            file.write(np.array([row, 1, 2], "<u4").tobytes())
    view = View.of(open_raw(str(tmp_path / "a.bin"), dtype="<u4", shape=(-1, 3)))
    assert len(view) == rows
    assert view[-1].tolist() == [rows - 1, 1, 2]
    assert view[::-1, 0].take([0, rows // 2, -1]).tolist() == [rows - 1, 0, 0]
    assert view[5 * 10**8].tolist() == [5 * 10**8, 1, 2]
    windows = view.windows(3, 2, shift=2, stride=5, horizon=7)
    _, test = windows.split(0.7, 0.3)
    assert len(windows[::-1]) == len(windows)
    x, y = test[::-1].take([0, 1])
    assert x.shape == (2, 3, 3)
    assert y.shape == (2, 2, 3)
    assert y[0, -1].tolist() == [rows - 1, 1, 2]
    pair = view[::-1].next_frame()
    assert pair[0][0].tolist() == [rows - 1, 1, 2]


# --- npz


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_the_only_array_of_an_archive(tmp_path: Path, save: Callable[..., None]) -> None:
    frames = sample_array((5, 2))
    save(tmp_path / "a.npz", frames=frames, rate=np.array(25.0), title=np.array(["a", "b"]))
    view = ooc.open(tmp_path / "a.npz")
    assert view.storage.key == "frames"
    assert_array_equal(np.asarray(view), frames)


def open_npz(path: str, key: str | None = None, axis: int = 0) -> Source:
    """Open a member of a file that need not begin as an archive does."""
    with NpzTree(path) as tree:
        return tree.open(key, axis)


def test_the_names_in_an_archive(tmp_path: Path):
    np.savez(tmp_path / "a.npz", np.zeros(3), u=np.ones(2))
    assert sorted(list_datasets(str(tmp_path / "a.npz"))) == ["arr_0", "u"]
    with pytest.raises(SeveralDatasetsError, match="several datasets: 'u', 'arr_0'"):
        open_source(str(tmp_path / "a.npz"))
    with pytest.raises(MissingKeyError, match=r"got 'v'. It holds: 'u', 'arr_0'"):
        open_source(str(tmp_path / "a.npz"), "v")


def test_one_array_needs_no_key(tmp_path: Path):
    np.savez(tmp_path / "a.npz", np.arange(3))
    assert_array_equal(np.asarray(View.of(open_source(str(tmp_path / "a.npz")))), range(3))


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_a_name_that_an_archive_holds_twice(tmp_path: Path) -> None:
    """The last member of a name is read, as by `numpy.load`; a pattern matches it once."""
    path = str(tmp_path / "a.npz")
    for values in ([1, 2], [3, 4, 5]):
        np.save(tmp_path / "u.npy", values)
        with zipfile.ZipFile(path, "a") as archive:
            archive.write(tmp_path / "u.npy", "u.npy")
    for key in (None, "u", "*"):
        assert_array_equal(np.asarray(View.of(open_source(path, key))), [3, 4, 5])


def test_an_empty_archive(tmp_path: Path):
    np.savez(tmp_path / "a.npz")
    with pytest.raises(MissingKeyError, match="it holds none"):
        open_source(str(tmp_path / "a.npz"))


@pytest.mark.parametrize("make", [os.mkdir, os.mkfifo])
def test_the_name_of_the_unpacked_member_is_taken(tmp_path: Path, make: Callable[[Path], None]):
    array = sample_array((4, 3))
    np.savez_compressed(tmp_path / "a.npz", x=array)
    assert_array_equal(ooc.open(tmp_path / "a.npz"), array)
    (unpacked,) = tmp_path.glob(".*")
    unpacked.unlink()
    make(unpacked)
    assert_array_equal(ooc.open(tmp_path / "a.npz"), array)


def test_a_compressed_member_is_unpacked_once(tmp_path: Path):
    array = sample_array((1000, 7))
    np.savez_compressed(tmp_path / "a.npz", u=array)
    view = ooc.open(tmp_path / "a.npz")
    assert (view.storage.format, view.storage.codec) == (".npz (compressed)", "deflate")
    assert f"unpacked to {tmp_path}" in view.storage.layout
    assert view.storage.stored_bytes < array.nbytes
    (hidden,) = [file for file in tmp_path.iterdir() if file.name != "a.npz"]
    before = hidden.stat().st_mtime_ns
    seen = [row for batch in view.batches(32, shuffle=True, seed=2) for row in batch[:, 0]]
    assert sorted(seen) == array[:, 0].tolist()
    assert_array_equal(np.asarray(ooc.open(tmp_path / "a.npz")), array)
    assert hidden.stat().st_mtime_ns == before
    np.savez_compressed(tmp_path / "a.npz", u=array + 1)
    assert_array_equal(np.asarray(ooc.open(tmp_path / "a.npz")), array + 1)
    assert not hidden.exists()


def test_compressed_members_each_have_a_file(tmp_path: Path):
    members = {f"u{number}": np.full((4, 3), number) for number in range(12)}
    np.savez_compressed(tmp_path / "a.npz", **members)
    view = ooc.open(tmp_path / "a.npz", "u*")
    assert_array_equal(np.asarray(view), np.concatenate(list(members.values())))
    assert len(list(tmp_path.iterdir())) == 13


def test_damaged_compressed_members(tmp_path: Path):
    path, array = tmp_path / "a.npz", np.random.default_rng(0).random((100, 20))
    np.savez_compressed(path, u=array)
    whole = path.read_bytes()
    for place in (len(whole) // 2, len(whole) * 3 // 4):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        with pytest.raises(DamagedChunkError, match="the file must unpack") as raised:
            ooc.open(path)[4]
        assert (raised.value.path, raised.value.key) == (str(path), "u")
    path.write_bytes(whole)
    assert pickle.loads(pickle.dumps(ooc.open(path)))[7].tolist() == array[7].tolist()
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("u.npy", npy_bytes(array)[:-8])
        archive.writestr("v.npy", npy_bytes(array) + b"more")
        archive.writestr("w.npy", npy_bytes(np.array([{}], object)))
        archive.writestr("x.npy", npy_bytes(array[:0]))
    for key, kind in [
        ("u", TruncatedFileError), ("v", TrailingBytesError), ("w", UnsupportedDtypeError)
    ]:  # fmt: skip
        with pytest.raises(kind):
            ooc.open(path, key)
    assert np.asarray(ooc.open(path, "x")).shape == (0, 20)


def npy_bytes(array: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def test_a_member_without_its_header(tmp_path: Path):
    np.savez(tmp_path / "a.npz", u=np.arange(1000))
    with (tmp_path / "a.npz").open("r+b") as file:
        file.write(b"\0")
    with pytest.raises(UnknownFormatError, match="must be readable; Bad magic number") as raised:
        open_npz(str(tmp_path / "a.npz"), "u")
    assert raised.value.key == "u"


def test_an_archive_cut_short(tmp_path: Path):
    np.savez(tmp_path / "a.npz", u=np.arange(1000))
    whole = (tmp_path / "a.npz").read_bytes()
    for length in (0, 10, 500, len(whole) - 1):
        (tmp_path / "a.npz").write_bytes(whole[:length])
        with pytest.raises(UnknownFormatError, match="ZIP archive"):
            open_npz(str(tmp_path / "a.npz"))


def test_a_member_with_other_bytes_in_it(tmp_path: Path):
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr("u.npy", b"no header at all")
        archive.writestr("readme.txt", b"hello")
    with pytest.raises(UnknownFormatError, match="header must be readable") as raised:
        open_source(str(tmp_path / "a.npz"))
    assert raised.value.key == "u"


def test_what_it_says_of_itself(tmp_path: Path):
    np.save(tmp_path / "a.npy", np.zeros((10, 3), ">f8", order="F"))
    source = open_npy(str(tmp_path / "a.npy"))
    assert isinstance(source, Strided)
    storage = source.storage()
    assert (storage.format, storage.layout) == (".npy", "contiguous, Fortran order")
    assert (storage.stored_bytes, storage.codec, storage.chunks) == (240, "none", None)
    assert storage.strides == (8, 80)
    assert [file.path for file in storage.files] == [storage.path]


def test_how_to_open_it_again(tmp_path: Path):
    array = np.arange(12, dtype=">i2").reshape(6, 2)
    np.save(tmp_path / "a.npy", array)
    np.savez(tmp_path / "a.npz", u=array, v=array + 1)
    np.savez_compressed(tmp_path / "b.npz", u=array, v=array + 1)
    (tmp_path / "a.bin").write_bytes(b"head" + array.tobytes())
    for source in (
        open_npy(str(tmp_path / "a.npy")),
        open_source(str(tmp_path / "a.npz"), "u"),
        open_source(str(tmp_path / "b.npz"), "u"),
        open_raw(str(tmp_path / "a.bin"), dtype=">i2", shape=(-1, 2), offset=4),
    ):
        again = json.loads(json.dumps(source.storage().opened))
        assert_array_equal(np.asarray(ooc.open(**again)), array)
