"""Arrays of every format are read back correctly by other libraries."""

from __future__ import annotations

import os
from contextlib import closing, nullcontext
from pathlib import Path
from typing import Any

import fork_server
import h5py
import numpy as np
import pytest
import tensorstore
import zarr
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from oocdata.errors import ArgumentError, MissingFileError, SourceError
from oocdata.formats.hdf5.decode import DEFLATE, SHUFFLE
from oocdata.writers import disk as disk_module
from oocdata.writers.disk import PARTIAL, Lock
from oocdata.writers.hdf5 import encode_chunk
from oocdata.writers.placement import Placement
from oocdata.writers.storage import open_storage
from oocdata.writers.target import Codec, Target, as_codec, format_by_suffix, target_key

pytestmark = pytest.mark.usefixtures("no_waiting_for_the_disk")

DTYPES = [
    "bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64",
    "float16", "float32", "float64", "complex64", "complex128",
]  # fmt: skip


def numbers(shape: tuple[int, ...], dtype: str, seed: int = 0) -> NDArray[Any]:
    """Return values with random bits (except bool), including every kind of NaN."""
    rng = np.random.default_rng(seed)
    if dtype == "bool":
        return rng.integers(0, 2, shape).astype(bool)
    nbytes = int(np.prod(shape)) * np.dtype(dtype).itemsize
    return np.frombuffer(rng.bytes(nbytes), dtype).reshape(shape)


def read(path: str, key: str | None = None) -> NDArray[Any]:
    """Read an array with NumPy, h5py or zarr-python, and check that TensorStore agrees."""
    if path.endswith(".npy"):
        return np.load(path)
    if path.endswith(".h5"):
        with h5py.File(path) as file:
            return file[key or "/data"][()]
    found = zarr.open_group(path, mode="r")[key][...] if key else zarr.open_array(path)[...]
    spec = {
        "driver": "zarr3",
        "kvstore": {"driver": "file", "path": os.path.join(path, key or "", "")},
    }
    other = tensorstore.open(spec, read=True).result().read().result()
    assert other.tobytes() == np.asarray(found).tobytes()
    return np.asarray(found)


def write(target: Target, path: str, values: NDArray[Any], rows: int) -> None:
    storage = open_storage(target, path)
    for start in range(0, len(values), rows):
        storage.write(start, values[start : start + rows])
    storage.close(len(values))


PLAIN = {
    ".npy": (None, None, "none"),
    ".h5": ((4, 3, 5), None, "none"),
    ".zarr": ((4, 3, 5), None, "none"),
}
ENCODED = {
    ".h5": ((4, 3, 2), None, "gzip"),
    ".zarr": ((4, 3, 2), (8, 6, 6), "blosc-zstd"),
}


@pytest.mark.parametrize(
    ("dtype", "suffix", "layout"),
    [
        *((dtype, suffix, PLAIN) for dtype in DTYPES for suffix in PLAIN),
        # Codecs see only bytes, so one dtype of each length is enough.
        *((dtype, suffix, ENCODED) for dtype in DTYPES[::3] for suffix in ENCODED),
    ],
)
def test_every_dtype(
    tmp_path: Path, dtype: str, suffix: str, layout: dict[str, tuple[Any, Any, str]]
) -> None:
    chunks, shards, codec = layout[suffix]
    values = numbers((21, 5, 5), dtype)
    kind = format_by_suffix(suffix and f"a{suffix}")
    target = Target(
        format=kind,
        key=target_key(kind, None),
        shape=values.shape,
        dtype=values.dtype,
        chunks=chunks,
        shards=shards,
        codec=as_codec(codec, kind),
    )
    path = str(tmp_path / f"a{suffix}")
    write(target, path, values, 8)
    found = read(path)
    assert found.dtype == values.dtype
    assert found.tobytes() == values.tobytes()


@pytest.mark.parametrize(
    ("suffix", "codec"),
    [
        *((".h5", name) for name in ("none", "gzip")),
        *((".zarr", name) for name in ("none", "gzip", "zstd", "blosc-lz4", "blosc-zstd")),
    ],
)
@pytest.mark.parametrize("random", [False, True], ids=["smooth", "random"])
def test_every_codec(tmp_path: Path, suffix: str, codec: str, random: bool) -> None:
    smooth = np.arange(50 * 64, dtype="f4").reshape(50, 64)
    values = numbers((50, 64), "float32") if random else smooth
    kind = format_by_suffix(f"a{suffix}")
    target = Target(
        format=kind,
        key=target_key(kind, None),
        shape=values.shape,
        dtype=values.dtype,
        chunks=(16, 64),
        shards=(32, 64) if suffix == ".zarr" else None,
        codec=as_codec(codec, kind),
    )
    path = str(tmp_path / f"a{suffix}")
    write(target, path, values, 32)
    assert read(path).tobytes() == values.tobytes()
    if suffix == ".h5" and codec != "none":
        with h5py.File(path) as file:
            there = [number for number, *_ in filters_in(file["data"])]
        assert there == [SHUFFLE, DEFLATE]


def filters_in(dataset: Any) -> list[tuple[int, tuple[int, ...]]]:
    """Return the id and the options of each filter of a dataset."""
    made = dataset.id.get_create_plist()
    filters = map(made.get_filter, range(made.get_nfilters()))
    return [(number, options) for number, _, options, _ in filters]


@given(
    shape=st.tuples(st.integers(1, 30), st.integers(1, 5), st.integers(1, 5)),
    chunks=st.tuples(st.integers(1, 9), st.integers(1, 5), st.integers(1, 5)),
    times=st.tuples(st.integers(1, 3), st.integers(1, 3), st.integers(1, 3)),
    units=st.integers(1, 3),
    kind=st.sampled_from(["hdf5", "zarr", "zarr-plain"]),
)
def test_any_chunks_and_shards(
    tmp_path_factory: pytest.TempPathFactory,
    shape: tuple[int, ...],
    chunks: tuple[int, ...],
    times: tuple[int, ...],
    units: int,
    kind: str,
) -> None:
    values = numbers(shape, "int16")
    shards = tuple(a * b for a, b in zip(chunks, times, strict=True)) if kind == "zarr" else None
    suffix = ".h5" if kind == "hdf5" else ".zarr"
    if kind == "hdf5":  # h5py rejects chunks that are longer than the dataset
        chunks = tuple(min(a, b) for a, b in zip(chunks, shape, strict=True))
    target = Target(
        format=format_by_suffix(f"a{suffix}"), key="/data" if kind == "hdf5" else None,
        shape=shape, dtype=values.dtype, chunks=chunks, shards=shards,
        codec=Codec("gzip", 1), fill_value=7,
    )  # fmt: skip
    path = str(tmp_path_factory.mktemp("any") / f"a{suffix}")
    write(target, path, values, units * target.unit[0])
    assert read(path).tobytes() == values.tobytes()


def test_zarr_chunks_of_the_fill_value_are_there(tmp_path: Path) -> None:
    import oocdata as ooc

    target = Target(format="zarr", key=None, shape=(8, 2), dtype=np.dtype("f4"), chunks=(2, 2),
                    shards=(4, 2), codec=Codec("zstd", 1))  # fmt: skip
    write(target, str(tmp_path / "a.zarr"), np.zeros((8, 2), "f4"), 4)
    assert not np.asarray(ooc.open(tmp_path / "a.zarr")).any()  # missing="error"


def test_random_bytes_are_stored_as_they_are() -> None:
    chunk = numbers((1000,), "uint8")
    data, skipped = encode_chunk(as_codec("gzip", "hdf5"), chunk)
    assert (len(data), skipped) == (1000, 1)
    assert bytes(data) == chunk.tobytes()


# Placement


def placed(path: Path, kind: Any = "npy", key: str | None = None, over: bool = False) -> Placement:
    return Placement.of(str(path), key, kind, over)


def test_a_result_has_its_name_when_it_is_placed(tmp_path: Path) -> None:
    one = placed(tmp_path / "a.npy")
    with closing(Lock(one)):
        Path(one.result).write_bytes(b"abc")
        assert not (tmp_path / "a.npy").exists()
        assert "a.npy" in (tmp_path / f"a.npy{PARTIAL}" / "README.txt").read_text()
        one.place()
        one.remove()
    assert [path.name for path in tmp_path.iterdir()] == ["a.npy"]


def test_an_existing_file_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "a.npy").write_bytes(b"mine")
    with pytest.raises(ArgumentError, match="overwrite=True"):
        placed(tmp_path / "a.npy")
    placed(tmp_path / "a.npy", over=True)


def test_a_file_that_appears_meanwhile_is_not_replaced(tmp_path: Path) -> None:
    one = placed(tmp_path / "a.npy")
    with closing(Lock(one)):
        Path(one.result).write_bytes(b"abc")
        (tmp_path / "a.npy").write_bytes(b"mine")
        with pytest.raises(ArgumentError, match="must not exist"):
            one.place()
    assert (tmp_path / "a.npy").read_bytes() == b"mine"


def test_a_folder_of_something_else_is_never_replaced(tmp_path: Path) -> None:
    (tmp_path / "a.zarr").mkdir()
    (tmp_path / "a.zarr" / "thesis.tex").write_text("mine")
    with pytest.raises(ArgumentError, match="folder is replaced only"):
        placed(tmp_path / "a.zarr", "zarr", over=True)
    with pytest.raises(ArgumentError, match="folder is replaced only"):
        placed(tmp_path / "a.zarr", "npy", over=True)


def test_a_group_is_replaced_only_by_its_only_array(tmp_path: Path) -> None:
    group = zarr.create_group(tmp_path / "a.zarr")
    group.create_array("u", shape=(2,), dtype="i4")
    for key in (None, "u/v", "w"):
        with pytest.raises(ArgumentError, match="folder is replaced only"):
            placed(tmp_path / "a.zarr", "zarr", key, over=True)
    with pytest.raises(ArgumentError, match="must not exist"):
        placed(tmp_path / "a.zarr", "zarr", "u")
    placed(tmp_path / "a.zarr", "zarr", "u", over=True)


def test_no_folder_no_file(tmp_path: Path) -> None:
    with pytest.raises(MissingFileError, match="nowhere"):
        placed(tmp_path / "nowhere" / "a.npy")


def test_one_writer_at_a_time(tmp_path: Path) -> None:
    code = (
        "import signal; from oocdata.writers.disk import Lock\n"
        "from oocdata.writers.placement import Placement\n"
        f"lock = Lock(Placement.of({str(tmp_path / 'a.npy')!r}, None, 'npy', False))\n"
        "print('held', flush=True); signal.pause()"
    )
    with fork_server.start(code) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "held\n"
        with pytest.raises(SourceError, match="another one is writing it"):
            Lock(placed(tmp_path / "a.npy"))
    with closing(Lock(placed(tmp_path / "a.npy"))):
        pass


def test_a_lock_on_a_deleted_file_does_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that waited for the lock must not share the folder with the next process."""
    one = placed(tmp_path / "a.npy")
    Lock(one).close()  # a process that was killed left its folder
    flock = disk_module.fcntl.flock
    locks: list[Lock] = []

    def late(number: int, how: int) -> None:  # the process before finishes after the open
        monkeypatch.setattr(disk_module.fcntl, "flock", flock)
        one.remove()
        locks.append(Lock(one))
        flock(number, how)

    monkeypatch.setattr(disk_module.fcntl, "flock", late)
    with pytest.raises(SourceError, match="another one"):
        Lock(one)
    locks[0].close()


def test_a_folder_that_goes_while_it_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process that held the lock finishes between two steps of the next process."""
    one = placed(tmp_path / "a.npy")
    Lock(one).close()
    lstat = os.lstat

    def late(path: str, *given: Any) -> os.stat_result:
        monkeypatch.setattr(os, "lstat", lstat)
        one.remove()
        return lstat(path, *given)

    monkeypatch.setattr(os, "lstat", late)
    with pytest.raises(SourceError, match="another one"):
        Lock(one)
    with closing(Lock(one)):
        assert [str(path) for path in tmp_path.iterdir()] == [one.folder]


def test_two_processes_that_make_the_folder_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, mkdir = placed(tmp_path / "a.npy"), os.mkdir
    locks: list[Lock] = []

    def late(path: str, mode: int) -> None:
        monkeypatch.setattr(os, "mkdir", mkdir)
        locks.append(Lock(one))
        mkdir(path, mode)

    monkeypatch.setattr(os, "mkdir", late)
    with pytest.raises(SourceError, match="another one"):
        Lock(one)
    assert [str(path) for path in tmp_path.iterdir()] == [one.folder]
    locks[0].close()


@pytest.mark.parametrize("exchange", [True, False])
def test_a_zarr_folder_is_replaced_in_one_step(
    tmp_path: Path, exchange: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not exchange:  # as on NFS, FUSE, macOS
        monkeypatch.setattr(disk_module, "rename_flagged", lambda *_: False)
    zarr.create_array(tmp_path / "a.zarr", shape=(2,), dtype="i4")[:] = 1
    one = placed(tmp_path / "a.zarr", "zarr", over=True)
    with closing(Lock(one)):
        zarr.create_array(one.result, shape=(3,), dtype="i4")[:] = 2
        with nullcontext() if exchange else pytest.raises(SourceError, match="Delete the old"):
            one.place()
        one.remove()
    assert zarr.open_array(tmp_path / "a.zarr")[:].tolist() == ([2, 2, 2] if exchange else [1, 1])
    assert [path.name for path in tmp_path.iterdir()] == ["a.zarr"]


@pytest.mark.parametrize("path", ["a.nc", "a", "a.npz"])
def test_unknown_suffixes(path: str) -> None:
    with pytest.raises(ArgumentError, match="must end in"):
        format_by_suffix(path)


@pytest.mark.parametrize(
    ("kind", "key"),
    [
        ("npy", "u"), ("hdf5", "a//b"), ("hdf5", "\udcff"),
        ("zarr", "../b"), ("zarr", "a/c"), ("zarr", "a\\b"), ("zarr", "a/.b"),
    ],
)  # fmt: skip
def test_bad_keys(kind: Any, key: str) -> None:
    with pytest.raises(ArgumentError, match="key"):
        target_key(kind, key)


@pytest.mark.parametrize(
    ("text", "kind", "message"),
    [
        ("lzma", "hdf5", "gzip"),
        ("gzip:1", "hdf5", "gzip, none"),
        ("zstd", "hdf5", "gzip, none"),
        ("lz4", "zarr", "blosc"),
        ("gzip", "npy", "none"),
    ],
)
def test_bad_codecs(text: str, kind: Any, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        as_codec(text, kind)
