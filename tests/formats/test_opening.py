"""Test the errors of `open` for every kind of bad input."""

from __future__ import annotations

import errno
import os
import re
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pandas as pd
import pytest
import zarr
from numpy.testing import assert_array_equal
from recording import RecordingSource
from servers.ranges import RangeServer

import oocdata as ooc
from oocdata.errors import (
    ArgumentError,
    MismatchedPartsError,
    MissingFileError,
    MissingKeyError,
    SeveralDatasetsError,
    SourceError,
    TruncatedFileError,
    UnknownFormatError,
    UnsupportedDtypeError,
)
from oocdata.formats.opening import format_of, list_datasets
from oocdata.testing import sample_array

ARRAY = sample_array((12, 3, 4), "<f4")


def store(folder: Path, kind: str, array: np.ndarray = ARRAY) -> tuple[Path, dict[str, Any]]:
    path = folder / {"raw": "a.bin", "npy": "a.npy", "npz": "a.npz", "hdf5": "a.h5"}.get(kind, kind)
    if kind == "npy":
        np.save(path, array)
    elif kind == "npz":
        np.savez(path, u=array)
    elif kind == "raw":
        path.write_bytes(array.tobytes())
        return path, {"dtype": array.dtype, "shape": array.shape}
    elif kind == "hdf5":
        with h5py.File(path, "w") as file:
            file["u"] = array
    else:
        zarr.save_array(str(path), array)
    return path, {}


KINDS = ["npy", "npz", "raw", "hdf5", "a.zarr"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("target", [str, Path, os.path.relpath, os.fsencode])
def test_any_format_by_path(tmp_path: Path, kind: str, target: Any):
    path, options = store(tmp_path, kind)
    view = ooc.open(target(path), **options)
    assert_array_equal(np.asarray(view), ARRAY)
    assert_array_equal(
        np.asarray(ooc.open(target(path), axis=-1, **options)), np.moveaxis(ARRAY, -1, 0)
    )


@pytest.mark.parametrize("kind", ["npy", "npz", "hdf5", "a.zarr"])
def test_a_format_is_known_by_its_content_not_its_name(tmp_path: Path, kind: str):
    path, _ = store(tmp_path, kind)
    renamed = path.rename(tmp_path / "renamed.dat")
    assert_array_equal(np.asarray(ooc.open(renamed)), ARRAY)
    assert format_of(str(renamed)) in kind
    (tmp_path / "link").symlink_to(renamed)
    assert_array_equal(np.asarray(ooc.open(tmp_path / "link")), ARRAY)


def test_the_home_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    store(tmp_path, "npy")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert len(ooc.open("~/a.npy")) == 12
    assert len(ooc.open("~/*.npy")) == 12


@pytest.mark.parametrize("kind", ["npy", "hdf5"])
def test_objects_of_every_library(tmp_path: Path, kind: str):
    path, _ = store(tmp_path, "hdf5")
    with h5py.File(path) as file:
        assert_array_equal(np.asarray(ooc.open(file["u"])), ARRAY)
    array = zarr.create_array({}, data=ARRAY, chunks=(5, 3, 4))
    assert_array_equal(np.asarray(ooc.open(array)), ARRAY)
    assert_array_equal(np.asarray(ooc.open(ARRAY)), ARRAY)


def test_a_source_of_ones_own():
    source = RecordingSource(ARRAY)
    view = ooc.open(source)
    assert view.source is source
    assert source.reads == []
    assert_array_equal(np.asarray(ooc.open(source, axis=1)), np.moveaxis(ARRAY, 1, 0))


def test_rows_of_ones_own():
    class Mine:
        shape, dtype = ARRAY.shape, ARRAY.dtype

        def read_rows(self, rows: np.ndarray, out: np.ndarray) -> None:
            out[...] = ARRAY[rows]

    view = ooc.open(Mine())
    assert_array_equal(np.asarray(view), ARRAY)
    assert_array_equal(view[::-1, 1].take([2]), ARRAY[[-3], 1])


@pytest.mark.parametrize("dtype", ["i4", np.int32, int])
def test_rows_of_ones_own_with_the_name_of_a_dtype(dtype: Any):
    class Mine:
        shape = (5, 2)

        def read_rows(self, rows: np.ndarray, out: np.ndarray) -> None:
            out[...] = rows[:, None]

    Mine.dtype = dtype
    view = ooc.open(Mine())
    assert view.dtype == np.dtype(dtype)
    assert_array_equal(view[3], [3, 3])


def test_a_source_of_ones_own_without_a_dtype():
    class Boxes(RecordingSource):
        dtype: Any = "f4"

    with pytest.raises(ArgumentError, match=r"`dtype` of Boxes must be .* got 'f4'"):
        ooc.open(Boxes(ARRAY))

    class Mine:
        shape, dtype = (5, 2), "nope"

        def read_rows(self, rows: np.ndarray, out: np.ndarray) -> None: ...

    with pytest.raises(ArgumentError, match=r"`dtype` of Mine must be a NumPy dtype; got 'nope'"):
        ooc.open(Mine())


@pytest.mark.parametrize("shape", [(-5, 2), (5, -2), 5, None, "ab"])
def test_a_source_of_ones_own_without_a_shape(shape: Any):
    class Boxes(RecordingSource):
        pass

    class Mine:
        dtype = np.dtype("f4")

        def read_rows(self, rows: np.ndarray, out: np.ndarray) -> None: ...

    Boxes.shape = Mine.shape = shape
    for made in (Boxes(ARRAY), Mine()):
        with pytest.raises(ArgumentError, match=r"`shape` of (Boxes|Mine) must be whole numbers"):
            ooc.open(made)


def test_a_source_of_ones_own_with_a_dtype_that_batches_cannot_hold():
    with pytest.raises(UnsupportedDtypeError, match="elements must be"):
        ooc.open(RecordingSource(np.zeros(3, np.longdouble)))
    with pytest.raises(ArgumentError, match="native byte order"):
        ooc.open(RecordingSource(np.zeros(3, ">f4")))


# --- what is not there


def test_folders_that_may_not_be_listed_or_entered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def refuses(*arguments: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(os, "listdir", refuses)
    for name in ("*.npy", ""):  # a glob ignores such folders
        with pytest.raises(SourceError, match=rf"must be readable; .*\[file '{tmp_path}'\]"):
            ooc.open(tmp_path / name)
    with pytest.raises(SourceError, match="must be readable"):
        ooc.check(tmp_path)
    with pytest.raises(MissingFileError, match=r"^No such file\. \[file"):
        ooc.open(tmp_path / "a.npy")
    monkeypatch.setattr(os, "stat", refuses)
    with pytest.raises(SourceError, match=r"must be readable; .* Permission denied") as raised:
        ooc.open(tmp_path / "a.npy")
    assert not isinstance(raised.value, MissingFileError)


def test_a_missing_file(tmp_path: Path):
    store(tmp_path, "npy")
    with pytest.raises(MissingFileError, match=r"Nearby: a\.npy\. \[file '.*aa\.npy'\]"):
        ooc.open(tmp_path / "aa.npy")
    with pytest.raises(MissingFileError, match=r"Nearby: a\.npy\."):
        ooc.open(tmp_path / "a")
    for name in ("nowhere/a.npy", "nowhere/else/a.npy"):
        hint = rf"^No such file\. There is no folder '{tmp_path}/nowhere'\. \[file"
        with pytest.raises(FileNotFoundError, match=hint):
            ooc.open(tmp_path / name)
    for name in ("a.npy/g/u", "a.npy::g/u", "a.npy::/g/u"):
        hint = f"`key` names a dataset in a file: ooc.open('{tmp_path}/a.npy', 'g/u')."
        with pytest.raises(MissingFileError, match=re.escape(hint)):
            ooc.open(f"{tmp_path}/{name}")
    with pytest.raises(MissingFileError):
        ooc.open(tmp_path / "a.bin", dtype="f4", shape=(-1,))
    with pytest.raises(MissingFileError):
        ooc.open("")


def test_a_link_that_leads_nowhere_or_in_a_circle(tmp_path: Path):
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    (tmp_path / "circle").symlink_to(tmp_path / "circle")
    for name in ("dangling", "circle"):
        with pytest.raises(MissingFileError):
            ooc.open(tmp_path / name)


def test_a_glob_without_a_match(tmp_path: Path):
    with pytest.raises(MissingFileError, match=r"must match at least one file.*\*\.npy"):
        ooc.open(tmp_path / "*.npy")
    for name in ("nowhere/*.npy", "nowhere/*/else/a*.npy"):
        hint = rf"at least one file; got none\. There is no folder '{tmp_path}/nowhere'\. \[file"
        with pytest.raises(MissingFileError, match=hint):
            ooc.open(tmp_path / name)


def test_two_stars_match_folders_of_any_depth(tmp_path: Path):
    (tmp_path / "a" / "b").mkdir(parents=True)
    for number, folder in enumerate(("", "a", "a/b")):
        np.save(tmp_path / folder / f"{number}.npy", np.full(2, number))
    view = ooc.open(tmp_path / "**" / "*.npy")
    assert np.asarray(view).tolist() == [0, 0, 1, 1, 2, 2]
    with pytest.raises(ArgumentError, match=r"`target` must not have \*\* at a URL.*s3://a/\*\*/u"):
        ooc.open("s3://a/**/u.npy")
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["u"] = file["a/u"] = file["a/b/u"] = np.zeros(2)
    with pytest.raises(ArgumentError, match=r"`key` must .*each step.*'\*\*/u'"):
        ooc.open(tmp_path / "a.h5", "**/u")


def test_a_folder_that_is_not_zarr(tmp_path: Path):
    with pytest.raises(UnknownFormatError, match=rf"must be a Zarr .*glob.*'{tmp_path}/\*\.npy'"):
        ooc.open(tmp_path)
    for name in ("README", "labels.csv", "1.png", "2.png"):
        (tmp_path / name).touch()
    with pytest.raises(UnknownFormatError, match=rf"'{tmp_path}/\*\.png'"):
        ooc.open(tmp_path)


def test_paths_that_are_no_list(tmp_path: Path):
    path, _ = store(tmp_path, "npy")
    with pytest.raises(UnknownFormatError, match=r"got \w+\. .*several paths as a list"):
        ooc.open(tmp_path.glob("*.npy"))
    column = pd.Series([str(path)], dtype="string")  # of a table of files and labels
    with pytest.raises(
        UnsupportedDtypeError, match=r"\(x, str\) for text; .*several paths as a list"
    ):
        ooc.open(column)
    assert_array_equal(ooc.open(column.to_list()), ARRAY)
    with (
        open(path, "rb") as file,
        pytest.raises(UnknownFormatError, match="the path of an open file"),
    ):
        ooc.open(file)


@pytest.mark.parametrize("options", [{}, {"dtype": "u1", "shape": (-1,)}], ids=["known", "raw"])
def test_what_is_no_file_is_not_waited_for(tmp_path: Path, options: dict[str, Any]):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", "/dev/zero"):
        with pytest.raises(UnknownFormatError, match=r"regular file.*got a pipe") as caught:
            ooc.open(path, **options)
        assert caught.value.path == str(path)


def test_a_disk_that_can_not_read_a_file(tmp_path: Path) -> None:
    path = tmp_path / "a.npy"
    path.symlink_to("/proc/self/mem")  # a regular file; reading its first byte is an I/O error
    for use, target in ((ooc.open, path), (ooc.open, f"{tmp_path}/*"), (ooc.check, path)):
        with pytest.raises(SourceError, match=r"must be readable.*Input/output error") as caught:
            use(target)
        assert caught.value.path == str(path)


def test_a_file_that_may_not_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path, _ = store(tmp_path, "npy")

    def refuse(*_: Any, **__: Any) -> Any:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr("builtins.open", refuse)
    for use in (ooc.open, ooc.check):
        for target in (path, path.with_name("*.npy"), [path, path]):
            with pytest.raises(SourceError, match=r"Permission denied.*a\.npy"):
                use(target)


# --- what is not right


def test_the_beginning_of_an_unknown_file_tells_what_it_is(tmp_path: Path):
    (tmp_path / "a.h5").write_text("version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\n")
    with pytest.raises(UnknownFormatError, match="first bytes are b'version https://git-lfs"):
        ooc.open(tmp_path / "a.h5")


@pytest.mark.parametrize("content", [b"", b"x", b"hello, world", b"\x93NUM", b"PK", bytes(5000)])
def test_files_of_no_known_format(tmp_path: Path, content: bytes):
    (tmp_path / "a.npy").write_bytes(content)
    with pytest.raises(
        UnknownFormatError, match=r"(first bytes are b|it is empty).*For raw binary"
    ):
        ooc.open(tmp_path / "a.npy")


def test_an_empty_file_is_not_refused_by_its_name(tmp_path: Path):
    (tmp_path / "a.txt.gz").touch()
    with pytest.raises(UnknownFormatError, match="it is empty"):
        ooc.open(tmp_path / "a.txt.gz")


def test_object_arrays(tmp_path: Path):
    np.save(tmp_path / "a.npy", np.array([{}, 1], object), allow_pickle=True)
    with pytest.raises(UnsupportedDtypeError, match="pickle"):
        ooc.open(tmp_path / "a.npy")


def test_keys(tmp_path: Path):
    path, _ = store(tmp_path, "npy")
    with pytest.raises(ArgumentError, match=r"`key` must be None for \.npy"):
        ooc.open(path, "u")
    with pytest.raises(ArgumentError, match=r"`key` must be None for an object.*file\['u'\]"):
        ooc.open(ARRAY, "u")
    np.savez(tmp_path / "two.npz", u=ARRAY, v=ARRAY + 1)
    assert_array_equal(np.asarray(ooc.open(tmp_path / "two.npz", "v")), ARRAY + 1)
    with pytest.raises(SeveralDatasetsError, match="'u', 'v'"):
        ooc.open(tmp_path / "two.npz")
    with pytest.raises(MissingKeyError, match="'w'"):
        ooc.open(tmp_path / "two.npz", "w")
    path, options = store(tmp_path, "raw")
    with pytest.raises(ArgumentError, match="`key` must be None for raw"):
        ooc.open(path, "u", **options)


@pytest.mark.parametrize(
    "options",
    [{"dtype": "f4"}, {"shape": (12, 3, 4)}, {"offset": 8}, {"dtype": "f4", "offset": 3}],
    ids=str,
)
def test_raw_arguments_for_what_is_not_raw(tmp_path: Path, options: dict[str, Any]):
    path, _ = store(tmp_path, "npy")
    for target in (path, ARRAY, [path, path]):
        with pytest.raises(ArgumentError, match="raw binary files only"):
            ooc.open(target, **options)


def test_a_dtype_that_numpy_does_not_know(tmp_path: Path):
    path, _ = store(tmp_path, "raw")
    with pytest.raises(ArgumentError, match="`dtype` must"):
        ooc.open(path, dtype="nonsense", shape=(-1,))
    with pytest.raises(UnsupportedDtypeError):
        ooc.open(path, dtype="V2", shape=(-1,))


@pytest.mark.parametrize("missing", ["Error", True, "zero"])
def test_missing(missing: Any):
    with pytest.raises(ArgumentError, match="`missing` must be 'error' or 'fill'"):
        ooc.open(ARRAY, missing=missing)


@pytest.mark.parametrize(
    "target",
    [None, 3, {"a": 1}, [], (), [3], [[]], object()],
    ids=lambda target: type(target).__name__,
)
def test_targets_of_no_use(target: Any):
    with pytest.raises((ArgumentError, UnknownFormatError), match="`target` must"):
        ooc.open(target)


def test_views_are_put_together_by_concat():
    view = ooc.open(ARRAY)
    for target in (view, ooc.zip(view, view), [view, view], (ARRAY, view), [ooc.zip(view, view)]):
        with pytest.raises(ArgumentError, match=r"no dataset that is open already.*ooc\.concat"):
            ooc.open(target)


def _objects(folder: Path) -> dict[str, Any]:
    """Return objects of all kinds to which `missing` or `external` does not apply."""
    import xarray

    class Mine:
        shape, dtype = ARRAY.shape, ARRAY.dtype

        def read_rows(self, rows: np.ndarray, out: np.ndarray) -> None:
            out[...] = ARRAY[rows]

    path = store(folder, "npy")[0]
    return {
        "array": ARRAY,
        "memmap": np.load(path, mmap_mode="r"),
        "source": RecordingSource(ARRAY),
        "rows": Mine(),
        "memoryview": _Slices(),
        "DataArray": xarray.DataArray(ARRAY),
        "dask": xarray.DataArray(ARRAY).chunk(4),
        "list": [ARRAY, ARRAY],
        "npy": path,
        "glob": folder / "*.npy",
        "npz": store(folder, "npz")[0],
    }


class _Slices:
    shape, dtype = ARRAY.shape, ARRAY.dtype

    def __getitem__(self, key: Any) -> Any:
        return ARRAY[key]


@pytest.mark.parametrize(
    "kind",
    [
        *("array", "memmap", "source", "rows", "memoryview", "DataArray", "dask"),
        *("list", "npy", "glob", "npz"),
    ],
)
def test_no_argument_is_ignored(tmp_path: Path, kind: str):
    target = _objects(tmp_path)[kind]
    with pytest.raises(ArgumentError, match=r"`missing` must be given for .*got 'fill'"):
        ooc.open(target, missing="fill")
    with pytest.raises(ArgumentError, match=r"`external` must be given for HDF5.*got True"):
        ooc.open(target, external=True)


def test_no_argument_is_ignored_for_raw_binary_and_zarr(tmp_path: Path):
    path, options = store(tmp_path, "raw")
    for name, value in (("missing", "fill"), ("external", True)):
        with pytest.raises(ArgumentError, match=f"`{name}` must be given for "):
            ooc.open(path, **options, **{name: value})
    array = zarr.create_array({}, data=ARRAY, chunks=(5, 3, 4))
    for target in (store(tmp_path, "a.zarr")[0], array):
        with pytest.raises(ArgumentError, match="`external` must be given for HDF5"):
            ooc.open(target, external=True)


# --- several files


def test_natural_order(tmp_path: Path):
    for number in (1, 2, 10, 9, 100):
        np.save(tmp_path / f"part{number}.npy", np.full((2, 3), number))
    view = ooc.open(tmp_path / "part*.npy")
    assert view[:, 0].take(range(0, 10, 2)).tolist() == [1, 2, 9, 10, 100]
    assert len(ooc.open(tmp_path / "part[12].npy")) == 4
    assert len(ooc.open(tmp_path / "part?.npy")) == 6


def test_natural_order_of_strange_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    names = ["a1", "a01", "a001", "²", "٣", "a-1", "1", "01a", "b", "a", "A2", "a10", "a9"]
    for number, name in enumerate(names):
        np.save(tmp_path / f"{name}.npy", np.full(1, number))
    first = np.asarray(ooc.open(tmp_path / "*.npy")).tolist()
    import glob

    found = glob.glob(str(tmp_path / "*.npy"))
    for order in (sorted(found), sorted(found, reverse=True), found[::-1]):
        monkeypatch.setattr(glob, "glob", lambda *_, order=order, **__: list(order))
        assert np.asarray(ooc.open(tmp_path / "*.npy")).tolist() == first
    assert first.index(names.index("a9")) < first.index(names.index("a10"))


def test_a_name_with_magic_characters_is_a_name_first(tmp_path: Path):
    np.save(tmp_path / "a[1].npy", np.arange(3))
    np.save(tmp_path / "a1.npy", np.arange(5))
    assert len(ooc.open(tmp_path / "a[1].npy")) == 3


def test_a_list_keeps_its_order(tmp_path: Path):
    for number in range(3):
        np.save(tmp_path / f"{number}.npy", np.full(2, number))
    paths = [tmp_path / "2.npy", str(tmp_path / "0.npy"), np.full(1, 7), str(tmp_path / "[01].npy")]
    assert np.asarray(ooc.open(paths)).tolist() == [2, 2, 0, 0, 7, 0, 0, 1, 1]
    assert np.asarray(ooc.open(tuple(paths[:1]))).tolist() == [2, 2]


def test_raw_files_in_a_glob(tmp_path: Path):
    for number in range(3):
        (tmp_path / f"{number}.bin").write_bytes(np.full((number + 1, 2), number, "<i2").tobytes())
    view = ooc.open(tmp_path / "*.bin", dtype="<i2", shape=(-1, 2))
    assert view[:, 0].take(range(6)).tolist() == [0, 1, 1, 2, 2, 2]


def test_parts_that_do_not_fit(tmp_path: Path):
    np.save(tmp_path / "a.npy", np.zeros((2, 3, 1)))
    np.save(tmp_path / "b.npy", np.zeros((2, 4, 2)))
    with pytest.raises(MismatchedPartsError, match=r"\(\*, 4, 2\) float64 \(1 part, .*b\.npy"):
        ooc.open(tmp_path / "*.npy")


def test_one_bad_part_is_named(tmp_path: Path):
    for name in "abc":
        np.save(tmp_path / f"{name}.npy", np.zeros((2, 3)))
    os.truncate(tmp_path / "b.npy", 150)
    with pytest.raises(TruncatedFileError, match=r"b\.npy"):
        ooc.open(tmp_path / "*.npy")


# --- what is in a file


def test_list_datasets(tmp_path: Path):
    assert list_datasets(str(store(tmp_path, "npy")[0])) == [None]
    assert list_datasets(str(store(tmp_path, "npz")[0])) == ["u"]
    assert [str(key).strip("/") for key in list_datasets(str(store(tmp_path, "hdf5")[0]))] == ["u"]


def test_hdf5_behind_a_user_block(tmp_path: Path):
    for block in (512, 1024, 4096, 1 << 17):
        path = tmp_path / f"{block}.h5"
        with h5py.File(path, "w", userblock_size=block) as file:
            file["u"] = ARRAY
        assert format_of(str(path)) == "hdf5"
        assert_array_equal(np.asarray(ooc.open(path)), ARRAY)
    with RangeServer(tmp_path) as server:
        assert_array_equal(np.asarray(ooc.open(f"{server.url}/{1 << 17}.h5")), ARRAY)


def test_text_that_only_its_name_calls_compressed(tmp_path: Path) -> None:
    (tmp_path / "lines.txt.gz").write_bytes(b"a\nb\n")
    with pytest.raises(UnknownFormatError, match=r"first bytes are b'a.nb.n'.*format='text'"):
        ooc.open(tmp_path / "lines.txt.gz")
