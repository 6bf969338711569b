"""Test HDF5 through open objects, with concurrent writers, and in other processes."""

from __future__ import annotations

import gc
import io
import os
import pickle
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import h5py
import hdf5plugin
import numpy as np
import pytest
from boxes import check_boxes
from forked import in_a_fork
from numpy.testing import assert_array_equal

from oocdata.datasets.view import View
from oocdata.engines.chunked import Chunked
from oocdata.engines.source import Source
from oocdata.engines.strided import Strided
from oocdata.errors import ArgumentError, MissingChunkError, SourceError
from oocdata.formats.hdf5 import library
from oocdata.formats.hdf5.filtered import FilteredChunks
from oocdata.formats.hdf5.library import ThroughLibrary, UsersObject
from oocdata.formats.hdf5.opening import from_dataset
from oocdata.formats.opening import open_source
from oocdata.testing import SourceConformance, sample_array

ARRAY = sample_array((40, 6), "f8") + 1


def read(source: Source, rows: Any = None) -> np.ndarray:
    view = View.of(source)
    return view.take(range(len(view)) if rows is None else rows)


@pytest.fixture
def path(tmp_path: Path) -> str:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["plain"] = ARRAY
        file.create_dataset("chunked", data=ARRAY, chunks=(7, 4), compression="gzip")
        file.create_dataset("zstd", data=ARRAY, chunks=(7, 4), **hdf5plugin.Zstd())
    return str(tmp_path / "a.h5")


def test_boxes_of_an_object_on_disk(tmp_path: Path) -> None:
    array = sample_array((23, 3, 5, 4))
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("g/u", data=array, chunks=(4, 3, 4, 4))
    with h5py.File(tmp_path / "a.h5") as file:
        source = from_dataset(file["g/u"])
    check_boxes(source, array)


class TestObjectInMemory(SourceConformance):
    @pytest.fixture(autouse=True)
    def close_files(self) -> Iterator[None]:
        self.files: list[Any] = []
        yield
        for file in self.files:
            file.close()

    def make(self, folder: Path, array: np.ndarray) -> Source:
        content = io.BytesIO()
        chunks = tuple(min(n, 4) for n in array.shape)
        with h5py.File(content, "w") as file:
            file.create_dataset("u", data=array, chunks=chunks)
        self.files.append(h5py.File(content, "r"))
        return from_dataset(self.files[-1]["u"])

    def test_pickle(self, tmp_path: Path) -> None:
        source = self.make(tmp_path, ARRAY)
        with pytest.raises(ArgumentError, match=r"to be pickled.*'/u'"):
            pickle.dumps(source)


@pytest.mark.parametrize("chunks", [None, (4, 3, 4, 4)], ids=str)
@pytest.mark.parametrize("being_written", [True, False])
def test_boxes_of_an_object(tmp_path: Path, being_written: bool, chunks: Any) -> None:
    for number, dtype in enumerate(("<f4", "|u1", "|b1", "<c8", ">i2")):
        array = sample_array((23, 3, 5, 4), dtype)
        target: Any = tmp_path / f"{number}.h5" if being_written else io.BytesIO()
        with h5py.File(target, "w") as file:
            check_boxes(from_dataset(file.create_dataset("u", data=array, chunks=chunks)), array)


def test_object_on_disk_is_described_by_path(path: str) -> None:
    with h5py.File(path) as file:
        plain, chunked = from_dataset(file["plain"]), from_dataset(file["chunked"])
        assert isinstance(plain, Strided)
        assert isinstance(chunked, Chunked)
        assert isinstance(chunked.reader, FilteredChunks)
        assert_array_equal(read(chunked, [3]), ARRAY[[3]])
    # Closing the user's object does not close the source, nor the other way round.
    assert_array_equal(read(chunked), ARRAY)
    with h5py.File(path) as file:
        again = from_dataset(file["chunked"])
        read(again)
        del again, chunked
        gc.collect()
        assert_array_equal(file["chunked"][...], ARRAY)


@pytest.mark.parametrize("how", ["core", "unlocked", "moved", "replaced", "anonymous"])
def test_object_that_path_and_name_do_not_lead_to(
    path: str, how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options: dict[str, Any] = {"core": {"driver": "core"}, "unlocked": {"locking": False}}.get(
        how, {}
    )
    if how == "moved":
        monkeypatch.chdir(tmp_path)
        path = "a.h5"
    if how == "anonymous":
        with h5py.File(tmp_path / "b.h5", "w") as file:
            dataset = file.create_dataset(None, data=ARRAY, chunks=(7, 4))
            source = from_dataset(dataset)
            assert source.storage().key is None
            assert_array_equal(read(source), ARRAY)
        return
    with h5py.File(path, "r", **options) as file:
        if how == "moved":
            monkeypatch.chdir("/")
        if how == "replaced":
            with h5py.File(tmp_path / "b.h5", "w") as other:
                other["chunked"] = -ARRAY
            os.replace(tmp_path / "b.h5", path)
        source = from_dataset(file["chunked"])
        assert isinstance(source, Chunked)
        assert isinstance(source.reader, ThroughLibrary)
        assert isinstance(source.reader.target, UsersObject)
        assert source.storage().chunks == (7, 4)
        assert_array_equal(read(source), ARRAY)


def test_objects_are_told_apart(path: str) -> None:
    sources = []
    files = [h5py.File(io.BytesIO(), "w") for _ in range(2)]
    for number, file in enumerate(files):
        file.create_dataset("u", data=ARRAY * (number + 1), chunks=(10, 6))
        sources.append(from_dataset(file["u"]))
    assert sources[0] != sources[1]
    assert_array_equal(read(sources[0]), ARRAY)
    assert_array_equal(read(sources[1]), ARRAY * 2)


@pytest.mark.parametrize("wrong", [None, np.zeros(3), "u"], ids=str)
def test_no_dataset(wrong: Any) -> None:
    with pytest.raises(ArgumentError, match=r"open h5py\.Dataset; got"):
        from_dataset(wrong)


def test_closed_objects() -> None:
    file = h5py.File(io.BytesIO(), "w")
    dataset = file.create_dataset("u", data=ARRAY, chunks=(10, 6))
    source = from_dataset(dataset)
    file.close()
    with pytest.raises(ArgumentError, match="Closed"):
        from_dataset(dataset)
    with pytest.raises(SourceError, match="must stay open"):
        read(source, [0])


def test_missing_chunks_of_an_object() -> None:
    with h5py.File(io.BytesIO(), "w") as file:
        dataset = file.create_dataset("u", (40, 6), "f8", chunks=(10, 6), fillvalue=-1)
        dataset[:10] = ARRAY[:10]
        with pytest.raises(MissingChunkError, match="rows 10, 11"):
            from_dataset(dataset)
        content = dataset[...]
        assert_array_equal(read(from_dataset(dataset, missing="fill")), content)


# Writers


@pytest.mark.parametrize("key", ["plain", "chunked"])
def test_what_is_written_is_seen(path: str, key: str) -> None:
    with h5py.File(path, "r+") as file:
        file[key][3] = -1.0  # not flushed
        source = from_dataset(file[key])
        expected = ARRAY.copy()
        expected[3] = -1
        assert source.storage().chunks is None
        assert_array_equal(read(source), expected)
        file[key][5] = -2.0
        expected[5] = -2
        assert_array_equal(read(source), expected)
        file[key]  # still open


@pytest.mark.parametrize("key", ["plain", "chunked"])
def test_a_file_that_this_process_writes_to(path: str, key: str) -> None:
    with h5py.File(path, "r+") as file:
        file[key][3] = -1.0
        with pytest.raises(SourceError, match=r"this process writes to it.*ooc\.open\(file\[key\]"):
            open_source(path, key)
        file[key][5] = -2.0  # its own handle is still open
    expected = ARRAY.copy()
    expected[[3, 5]] = [[-1], [-2]]
    assert_array_equal(read(open_source(path, key)), expected)


def test_object_that_shrank() -> None:
    with h5py.File(io.BytesIO(), "w") as file:
        dataset = file.create_dataset("u", data=ARRAY, chunks=(10, 6), maxshape=(None, 6))
        source = from_dataset(dataset)
        dataset.resize((20, 6))
        with pytest.raises(SourceError, match=r"rows? 30"):
            read(source, [30])


WRITER = """
import sys, h5py
file = h5py.File(sys.argv[1], "r+")
print("open", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def writer(path: str) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", WRITER, path]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "open\n"
        yield process
        process.communicate("")


def test_writer_in_another_process(path: str, writer: subprocess.Popen[str]) -> None:
    with pytest.raises(SourceError, match=r"locked.*HDF5_USE_FILE_LOCKING") as caught:
        open_source(path, "chunked")
    assert caught.value.path == path


def test_swmr_writer_in_another_process(tmp_path: Path) -> None:
    path = str(tmp_path / "a.h5")
    with h5py.File(path, "w", libver="latest") as file:
        file.create_dataset("u", data=ARRAY, chunks=(7, 4))
    script = WRITER.replace('"r+")', '"r+", libver="latest"); file.swmr_mode = True')
    with subprocess.Popen(
        [sys.executable, "-c", script, path],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        with pytest.raises(SourceError, match="open for writing elsewhere"):
            open_source(path)
        process.communicate("")
    assert_array_equal(read(open_source(path)), ARRAY)


# Forks and other processes


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.parametrize("before", [True, False], ids=["read before", "unread"])
def test_fork(path: str, before: bool) -> None:
    sources = [open_source(path, key) for key in ("plain", "chunked", "zstd")]
    if before:
        for source in sources:
            read(source, [0, 20])
    same = in_a_fork(lambda: all(np.array_equal(read(source), ARRAY) for source in sources))
    assert same == "True"
    for source in sources:
        assert_array_equal(read(source), ARRAY)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_fork_with_an_open_object() -> None:
    with h5py.File(io.BytesIO(), "w") as file:
        source = from_dataset(file.create_dataset("u", data=ARRAY, chunks=(10, 6)))
        read(source, [0])

        message = in_a_fork(lambda: read(source, [30]))
        assert message.startswith("SourceError: ")
        assert "a fork of it" in message
        assert_array_equal(read(source), ARRAY)


def test_fresh_process_loads_plugins(path: str) -> None:
    source = open_source(path, "zstd")
    script = (
        "import pickle, sys, numpy as np\n"
        "source = pickle.loads(sys.stdin.buffer.read())\n"
        "from oocdata.box import Extent\n"
        "out = np.empty((1, *source.shape))\n"
        "source.read(np.zeros((1, out.ndim - 1), np.int64), Extent.of(source.shape), out)\n"
        "sys.stdout.buffer.write(out.tobytes())\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], input=pickle.dumps(source), capture_output=True, check=True
    )
    assert done.stdout == ARRAY.tobytes()


def test_memory_stays_flat(tmp_path: Path) -> None:
    """HDF5's own chunk cache is off, since the engine caches chunks."""
    path = str(tmp_path / "a.h5")
    with h5py.File(path, "w") as file:
        zeros = np.zeros((64, 1000), "i4")
        file.create_dataset("u", data=zeros, chunks=(8, 1000), scaleoffset=4)
    source = open_source(path)
    read(source)
    opened = library._open[source.reader.target]  # type: ignore[attr-defined]
    assert opened.dataset.id.get_access_plist().get_chunk_cache()[1] == 0


def test_the_file_is_free_once_the_table_of_chunks_is_known(tmp_path: Path) -> None:
    """HDF5 refuses to open a file for writing that is open for reading."""
    path = str(tmp_path / "a.h5")
    with h5py.File(path, "w") as file:
        file.create_dataset("u", data=ARRAY, chunks=(2, *ARRAY.shape[1:]), compression="gzip")
    source = open_source(path)
    assert_array_equal(read(source), ARRAY)
    with h5py.File(path, "r+") as file:
        file["v"] = ARRAY
