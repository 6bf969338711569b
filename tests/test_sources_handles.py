"""The table of handles: bounded, one for each process, never closed under a user's hands."""

from __future__ import annotations

import gc
import os
import pickle
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from conftest import close_handles, open_files

from oocdata.datasets.open import open as open_view
from oocdata.errors import MissingFileError
from oocdata.sources import handles
from oocdata.sources.handles import Descriptor, handle


@pytest.fixture(autouse=True)
def an_empty_table():
    close_handles()


def test_opened_once_whoever_asks():
    opened: list[int] = []
    start = threading.Barrier(8)

    def get(_: int) -> object:
        start.wait()
        return handle("one", lambda: opened.append(1) or object())

    with ThreadPoolExecutor(8) as threads:
        assert len({id(found) for found in threads.map(get, range(8))}) == 1
    assert opened == [1]


def test_the_table_is_bounded_and_the_oldest_goes():
    for number in range(1000):
        handle(number, lambda number=number: [number])
        handle("kept", lambda: ["kept"])
    assert len(handles._open) == handles._MOST_OPEN
    assert "kept" in handles._open
    assert 0 not in handles._open


def test_an_opener_that_fails_leaves_nothing():
    def fail() -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        handle("a", fail)
    assert handle("a", lambda: 3) == 3


def test_an_opener_may_ask_for_handles():
    assert handle("a", lambda: [handle("b", lambda: 3)]) == [3]


def test_a_descriptor_closes_with_its_last_reference(tmp_path: Path):
    (tmp_path / "a").write_bytes(b"abc")
    first = handle("a", lambda: Descriptor(str(tmp_path / "a")))
    for number in range(handles._MOST_OPEN):
        handle(number, lambda: 0)
    assert "a" not in handles._open
    assert os.pread(first.number, 3, 0) == b"abc"  # pushed out, yet whoever holds it can read
    del first
    gc.collect()
    assert open_files(tmp_path) == []


def test_a_missing_file(tmp_path: Path):
    with pytest.raises(MissingFileError, match=r"it is gone.*nowhere"):
        Descriptor(str(tmp_path / "nowhere"))


def test_thousands_of_files_need_few_descriptors(tmp_path: Path):
    for number in range(1500):
        np.save(tmp_path / f"part{number}.npy", np.full((2, 3), number, "i2"))
    view = open_view(str(tmp_path / "part*.npy"))
    assert open_files(tmp_path) == []
    assert (np.asarray(view)[::2, 0] == np.arange(1500)).all()
    assert 0 < len(open_files(tmp_path)) <= handles._MOST_OPEN
    rng = np.random.default_rng(0)
    with ThreadPoolExecutor(4) as threads:
        orders = [rng.integers(0, 3000, 64) for _ in range(30)]
        for rows, batch in zip(orders, threads.map(view.take, orders), strict=True):
            assert (batch[:, 0] == rows // 2).all()
    assert len(open_files(tmp_path)) <= handles._MOST_OPEN


def test_a_child_opens_its_own(tmp_path: Path):
    np.save(tmp_path / "a.npy", np.arange(10))
    view = open_view(tmp_path / "a.npy")
    assert view[3] == 3
    parents = dict(handles._open)
    child = os.fork()
    if child == 0:  # pragma: no cover
        fine = not handles._open and view[4] == 4
        fresh = all(one is not two for one in handles._open.values() for two in parents.values())
        os._exit(0 if fine and fresh else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert view[5] == 5
    assert dict(handles._open) == parents


def test_a_fork_while_another_thread_opens_does_not_hang(tmp_path: Path):
    np.save(tmp_path / "a.npy", np.arange(10))
    view = open_view(tmp_path / "a.npy")
    inside, go = threading.Event(), threading.Event()
    thread = threading.Thread(target=handle, args=("slow", lambda: (inside.set(), go.wait())))
    thread.start()
    inside.wait()
    child = os.fork()  # the table's lock is held, by a thread that is not in the child
    if child == 0:  # pragma: no cover
        os._exit(0 if view[4] == 4 else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    go.set()
    thread.join()


def test_nothing_open_is_pickled(tmp_path: Path):
    np.save(tmp_path / "a.npy", np.arange(10))
    view = open_view(tmp_path / "a.npy")
    before = pickle.dumps(view)
    assert view[3] == 3
    assert pickle.dumps(view) == before
    assert len(before) < 2000
