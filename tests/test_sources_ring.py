"""Many reads in one call: the same bytes as one by one, whatever ends early."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from oocdata.sources import requests, ring
from oocdata.sources.extents import Extents
from oocdata.sources.npy import open_npy
from oocdata.testing import SourceConformance, sample_array


def row_by_row(path: Path) -> Extents:
    source = open_npy(str(path))
    assert isinstance(source, Extents)
    return replace(source, kept=None)


HELD = np.random.default_rng(0).integers(0, 256, 100_000).astype(np.uint8)


@pytest.fixture(scope="module")
def number(tmp_path_factory: pytest.TempPathFactory) -> Any:
    path = tmp_path_factory.mktemp("ring") / "held"
    path.write_bytes(HELD.tobytes())
    number = os.open(path, os.O_RDONLY)
    none = ring.read_many(number, np.array([0]), np.zeros(1, np.int64), np.array([0])) is None
    if none:
        os.close(number)
        pytest.skip("this system has no io_uring")
    yield number
    os.close(number)


@given(
    requests=st.lists(
        st.tuples(st.integers(0, 110_000), st.integers(1, 3000)), min_size=1, max_size=600
    )
)
def test_the_bytes_are_those_of_the_file(number: int, requests: list[tuple[int, int]]) -> None:
    offsets, lengths = (np.array(part, np.int64) for part in zip(*requests, strict=True))
    out = np.full(int(lengths.sum()), 7, np.uint8)
    places = np.cumsum(lengths) - lengths
    done = ring.read_many(number, offsets, out.ctypes.data + places, lengths)
    assert done is not None
    assert_array_equal(done, np.clip(len(HELD) - offsets, 0, lengths))
    for offset, place, got in zip(offsets, places, done, strict=True):
        assert_array_equal(out[place : place + got], HELD[offset : offset + got])


def test_errors_are_numbers(number: int) -> None:
    out = np.zeros(8, np.uint8)
    at = out.ctypes.data + np.array([0, 4])
    done = ring.read_many(2**20, np.array([0, 0]), at, np.array([4, 4]))
    assert done is not None
    assert (done == -9).all()  # EBADF


def test_threads_have_queues_of_their_own(number: int) -> None:
    def work(seed: int) -> None:
        rng = np.random.default_rng(seed)
        for _ in range(50):
            offsets = rng.integers(0, 99_000, 40)
            out = np.zeros((40, 1000), np.uint8)
            lengths = np.full(40, 1000)
            done = ring.read_many(number, offsets, out.ctypes.data + np.arange(40) * 1000, lengths)
            if done is not None:  # another thread may have taken the last idle queue
                assert (done == 1000).all()
                for row, offset in zip(out, offsets, strict=True):
                    assert_array_equal(row, HELD[offset : offset + 1000])

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(work, range(6)))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_child_makes_queues_of_its_own(number: int) -> None:
    child = os.fork()
    if child == 0:
        out = np.zeros(100, np.uint8)
        at = out.ctypes.data + np.zeros(1, np.int64)
        ring.read_many(number, np.array([50]), at, np.array([100]))
        os._exit(0 if (out == HELD[50:150]).all() else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_a_system_without_it_reads_one_by_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused() -> Any:
        raise PermissionError("not in this container")

    monkeypatch.setattr(ring, "_Ring", refused)
    monkeypatch.setattr(ring, "_idle", [])
    monkeypatch.setattr(ring, "_usable", True)
    array = sample_array((100, 25))
    np.save(tmp_path / "a.npy", array)
    rows = np.random.default_rng(0).integers(0, 100, 50)
    got = SourceConformance().read(row_by_row(tmp_path / "a.npy"), rows)
    assert_array_equal(got, array[rows])
    assert not ring._usable


def test_what_falls_short_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A signal may end a read early, and a disk may fail for a moment."""
    asked = []

    def half(file: int, offsets: Any, addresses: Any, lengths: Any) -> Any:
        asked.append(len(offsets))
        done = np.zeros(len(offsets), np.int64)
        done[::3] = -4  # EINTR
        return done

    monkeypatch.setattr(requests, "read_many", half)
    array = sample_array((100, 25))
    np.save(tmp_path / "a.npy", array)
    rows = np.arange(0, 100, 2)
    got = SourceConformance().read(row_by_row(tmp_path / "a.npy"), rows)
    assert_array_equal(got, array[rows])
    assert asked == [50]


def test_a_file_that_was_read_is_not_held_open(number: int, tmp_path: Path) -> None:
    """Many reads register their file with the kernel: deleted later, its space must come back."""
    (tmp_path / "a").write_bytes(bytes(1000))
    file = os.open(tmp_path / "a", os.O_RDONLY)
    out = np.ones(ring._WORTH_REGISTERING, np.uint8)
    offsets, lengths = np.arange(len(out)), np.ones(len(out), np.int64)
    assert ring.read_many(file, offsets, out.ctypes.data + offsets, lengths) is not None
    os.close(file)
    assert not out.any()
    assert all(one._file[0] == -1 for one in ring._idle)


def test_a_kernel_that_registers_no_files(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    real = ring._Ring._system

    def refused(self: Any, call: int, *arguments: Any) -> int:
        if call == ring._REGISTER:
            raise OSError(22, "Invalid argument")
        return real(self, call, *arguments)

    monkeypatch.setattr(ring._Ring, "_system", refused)
    monkeypatch.setattr(ring, "_idle", [])
    out = np.zeros(ring._WORTH_REGISTERING * 3, np.uint8)
    offsets, lengths = np.arange(len(out))[::-1].copy(), np.ones(len(out), np.int64)
    done = ring.read_many(number, offsets, out.ctypes.data + np.arange(len(out)), lengths)
    assert done is not None
    assert (done == 1).all()
    assert_array_equal(out, HELD[: len(out)][::-1])
