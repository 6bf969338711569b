"""Open files: descriptors are few, stay open while in use, and no thread waits for another."""

from __future__ import annotations

import gc
import os
import pickle
import resource
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import open_files

import oocdata as ooc
from oocdata.engines import files
from oocdata.engines.atomic import atomic_file
from oocdata.engines.files import Descriptor, FileVersion, OpenFile
from oocdata.errors import MissingFileError, SourceError, TruncatedFileError


def opened(folder: Path, name: str, content: bytes = b"abc") -> OpenFile:
    (folder / name).write_bytes(content)
    return OpenFile(FileVersion.of(str(folder / name)))


@pytest.mark.parametrize(("replaces", "stays"), [(True, b"two"), (False, b"one")])
def test_the_first_or_the_last_writer_of_a_name(
    tmp_path: Path, replaces: bool, stays: bytes
) -> None:
    for content in (b"one", b"two"):
        with atomic_file(str(tmp_path / "a"), replaces=replaces) as file:
            file.write(content)
    assert os.listdir(tmp_path) == ["a"]
    assert (tmp_path / "a").read_bytes() == stays


def test_a_file_closes_with_its_last_reference(tmp_path: Path) -> None:
    file = opened(tmp_path, "a")
    assert open_files(tmp_path) == []
    descriptor = file.opened()
    assert descriptor.read(0, 3) == b"abc"
    assert open_files(tmp_path) == [str(tmp_path / "a")]
    del file
    gc.collect()
    assert descriptor.read(0, 3) == b"abc"
    del descriptor
    assert open_files(tmp_path) == []
    assert not files._opened


def test_a_file_is_opened_once(tmp_path: Path) -> None:
    file = opened(tmp_path, "a")
    assert file.opened() is file.opened()


def test_few_are_open_and_the_oldest_is_released(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "_most_open", lambda: 3)
    some = [opened(tmp_path, name) for name in "abcdef"]
    pinned = some[0].opened()
    for file in some:
        file.opened()
        assert len(open_files(tmp_path)) <= 3 + 1
    assert str(tmp_path / "b") not in open_files(tmp_path)
    assert os.pread(pinned.number, 3, 0) == b"abc"  # released, but the reader still has it
    assert some[0].opened() is not pinned


def test_the_bound_leaves_descriptors_to_others() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (1024, hard))
        assert files._most_open() == 256
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert files._most_open() == min(files._MOST_OPEN, soft // 4)


def test_thousands_of_files_need_few_descriptors(tmp_path: Path) -> None:
    for number in range(1500):
        np.save(tmp_path / f"part{number}.npy", np.full((2, 3), number, "i2"))
    view = ooc.open(str(tmp_path / "part*.npy"))
    assert open_files(tmp_path) == []
    assert (np.asarray(view)[::2, 0] == np.arange(1500)).all()
    assert 0 < len(open_files(tmp_path)) <= files._most_open()
    rng = np.random.default_rng(0)
    with ThreadPoolExecutor(4) as threads:
        orders = [rng.integers(0, 3000, 64) for _ in range(30)]
        for rows, batch in zip(orders, threads.map(view.take, orders), strict=True):
            assert (batch[:, 0] == rows // 2).all()
    assert len(open_files(tmp_path)) <= files._most_open() + 4


def test_no_file_waits_for_another_to_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slow, quick = opened(tmp_path, "slow"), opened(tmp_path, "quick")
    real, inside, go = os.open, threading.Event(), threading.Event()

    def open_slowly(path: Any, *arguments: Any, **named: Any) -> int:
        if str(path).endswith("slow"):
            inside.set()
            assert go.wait(60)
        return real(path, *arguments, **named)

    monkeypatch.setattr(os, "open", open_slowly)
    thread = threading.Thread(target=slow.opened)
    thread.start()
    assert inside.wait(60)
    assert quick.opened().read(0, 3) == b"abc"  # before the other file is opened
    go.set()
    thread.join()


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(MissingFileError, match=r"it is gone.*nowhere"):
        Descriptor(str(tmp_path / "nowhere"))


def test_another_version_is_not_opened(tmp_path: Path) -> None:
    file = opened(tmp_path, "a")
    (tmp_path / "b").write_bytes(b"abc")
    os.replace(tmp_path / "b", tmp_path / "a")
    with pytest.raises(SourceError, match="has changed"):
        file.opened()
    assert open_files(tmp_path) == []


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_what_took_the_name_of_a_file_is_not_waited_for(tmp_path: Path, make: Any) -> None:
    file = opened(tmp_path, "a")
    (tmp_path / "a").unlink()
    make(tmp_path / "a")
    with pytest.raises(SourceError, match=r"changed|cut short"):
        file.opened()


def test_reads_wait_for_the_disk(tmp_path: Path) -> None:
    assert os.get_blocking(opened(tmp_path, "a").opened().number)


def test_versions_differ_by_anything(tmp_path: Path) -> None:
    file = opened(tmp_path, "a")
    version, status = file.version, os.stat(tmp_path / "a")
    version.compare(status)
    for field in (0, 1, 3, 4, 5):
        names = ["path", "device", "inode", "nbytes", "modified", "changed"]
        other = {name: getattr(version, name) for name in names}
        other[names[max(field, 1)]] -= 1
        with pytest.raises(SourceError, match="it has changed"):
            FileVersion(**other).compare(status, "u", [3])
    with pytest.raises(TruncatedFileError, match=r"hold 4 bytes.*ends at 3.*'u', row 3"):
        FileVersion(version.path, 0, 0, 4, None, None).compare(status, "u", [3])
    version.writable().compare(status)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_child_reads_from_what_is_open(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.arange(10))
    view = ooc.open(tmp_path / "a.npy")
    assert view[3] == 3
    child = os.fork()
    if child == 0:  # pragma: no cover
        os._exit(0 if view[4] == 4 else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert view[5] == 5


def test_descriptors_are_not_pickled(tmp_path: Path) -> None:
    file = opened(tmp_path, "a")
    before = pickle.dumps(file)
    file.opened()
    assert pickle.dumps(file) == before
    assert pickle.loads(before).version == file.version


def test_a_file_that_another_thread_releases_is_still_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, status = opened(tmp_path, "a"), os.fstat

    def while_another_thread_makes_room(number: int) -> os.stat_result:
        file._descriptor = None
        return status(number)

    monkeypatch.setattr(os, "fstat", while_another_thread_makes_room)
    for _ in range(3):
        file.opened().compare()
