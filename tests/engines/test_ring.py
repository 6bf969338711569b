"""Many reads in one call: the same bytes as single reads, also after failures."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from oocdata.datasets.view import View
from oocdata.engines import ring, runs
from oocdata.engines.runs import UnfinishedError, read_runs
from oocdata.formats.npy import open_npy
from oocdata.testing import sample_array

HELD = np.random.default_rng(0).integers(0, 256, 100_000).astype(np.uint8)
THOUSANDS = np.full(40, 1000)


@pytest.fixture(scope="module")
def number(tmp_path_factory: pytest.TempPathFactory) -> Any:
    path = tmp_path_factory.mktemp("ring") / "held"
    path.write_bytes(HELD.tobytes())
    number = os.open(path, os.O_RDONLY)
    one, out = np.zeros(1, np.int64), np.zeros(1, np.uint8)
    if ring.read_many(number, one, one + out.ctypes.data, one + 1, out) is None:
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
    done = ring.read_many(number, offsets, out.ctypes.data + places, lengths, out)
    assert done is not None
    assert_array_equal(done, np.clip(len(HELD) - offsets, 0, lengths))
    for offset, place, got in zip(offsets, places, done, strict=True):
        assert_array_equal(out[place : place + got], HELD[offset : offset + got])


def test_more_reads_than_the_queue_holds(number: int) -> None:
    """Each run gets its own bytes and result."""
    random = np.random.default_rng(0)
    offsets, lengths = random.integers(0, 101_000, 2000), random.integers(1, 200, 2000)
    out, places = np.zeros(400_000, np.uint8), 200 * random.permutation(2000)
    done = ring.read_many(number, offsets, out.ctypes.data + places, lengths, out)
    assert_array_equal(done, np.clip(len(HELD) - offsets, 0, lengths))
    for offset, place, length in zip(offsets, places, lengths, strict=True):
        held = HELD[offset : offset + length]
        assert_array_equal(out[place : place + len(held)], held)


def test_errors_are_numbers(number: int) -> None:
    out = np.zeros(8, np.uint8)
    at = out.ctypes.data + np.array([0, 4])
    done = ring.read_many(2**20, np.array([0, 0]), at, np.array([4, 4]), out)
    assert done is not None
    assert (done == -9).all()  # EBADF


def test_each_thread_has_its_queues(number: int) -> None:
    def work(seed: int) -> None:
        rng = np.random.default_rng(seed)
        for _ in range(50):
            offsets = rng.integers(0, 99_000, 40)
            out = np.zeros((40, 1000), np.uint8)
            at = out.ctypes.data + np.arange(40) * 1000
            done = ring.read_many(number, offsets, at, THOUSANDS, out)
            assert done is not None
            assert (done == 1000).all()
            for row, offset in zip(out, offsets, strict=True):
                assert_array_equal(row, HELD[offset : offset + 1000])

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(work, range(6)))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_child_process_makes_new_queues(number: int) -> None:
    child = os.fork()
    if child == 0:
        out = np.zeros(100, np.uint8)
        ring.read_many(number, np.array([50]), np.array([out.ctypes.data]), np.array([100]), out)
        os._exit(0 if (out == HELD[50:150]).all() else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.mark.parametrize("when", ["before", "after"])
def test_an_interrupt_leaves_no_read_in_flight(
    number: int, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    """Ctrl-C may come between any two instructions; submitted reads are still completed."""
    monkeypatch.setattr(ring, "_idle", [])
    out = np.zeros((40, 1000), np.uint8)
    offsets, at = np.arange(40) * 1000, out.ctypes.data + np.arange(40) * 1000
    assert ring.read_many(number, offsets, at, THOUSANDS, out) is not None
    (used,) = ring._idle
    real, interrupts = used._call, [KeyboardInterrupt]

    def interrupted(*arguments: Any) -> Any:
        if when == "before" and interrupts:
            raise interrupts.pop()
        result = real(*arguments)
        if interrupts:
            raise interrupts.pop()
        return result

    used._call = interrupted
    out[...] = 0
    with pytest.raises(KeyboardInterrupt):
        ring.read_many(number, offsets, at, THOUSANDS, out)
    assert_array_equal(out.ravel(), HELD[:40_000])  # nothing is written after this
    assert ring._idle == [used]
    assert used.target is None
    out[...] = 0
    assert (ring.read_many(number, offsets, at, THOUSANDS, out) == 1000).all()
    assert_array_equal(out.ravel(), HELD[:40_000])


def test_a_queue_that_is_lost_is_never_used_again(
    number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second Ctrl-C may end the wait too; the memory must then stay referenced."""
    monkeypatch.setattr(ring, "_idle", [])
    out = np.zeros((40, 1000), np.uint8)
    offsets, at = np.arange(40) * 1000, out.ctypes.data + np.arange(40) * 1000
    assert ring.read_many(number, offsets, at, THOUSANDS, out) is not None
    (used,) = ring._idle
    real = used._call

    def interrupted(*_: Any) -> Any:
        raise KeyboardInterrupt

    used._call = interrupted
    with pytest.raises(KeyboardInterrupt):
        ring.read_many(number, offsets, at, THOUSANDS, out)
    assert ring._idle == []
    assert used.target is out
    assert used in ring._rings
    used._call = real
    used._wait()
    ring._rings.remove(used)


def test_a_system_without_io_uring_reads_one_by_one(
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
    assert_array_equal(View.of(open_npy(str(tmp_path / "a.npy"))).take(rows), array[rows])
    assert not ring._usable


def test_io_uring_can_be_switched_off() -> None:
    code = "from oocdata.engines import ring; print(ring._usable)"
    environment = {**os.environ, "OOCDATA_IO_URING": "0"}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout == "False\n"


def test_short_reads_are_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A signal may end a read early, and a disk may fail for a moment."""
    asked = []

    def some(file: int, offsets: Any, addresses: Any, lengths: Any, target: Any) -> Any:
        asked.append(len(offsets))
        done = lengths.copy()
        done[::3] = -4  # EINTR
        ring_less = np.delete(np.arange(len(offsets)), np.s_[::3])
        runs._read_each(file, offsets[ring_less], addresses[ring_less], lengths[ring_less])
        return done

    monkeypatch.setattr(runs, "read_many", some)
    array = sample_array((100, 25))
    np.save(tmp_path / "a.npy", array)
    rows = np.arange(0, 100, 2)
    assert_array_equal(View.of(open_npy(str(tmp_path / "a.npy"))).take(rows), array[rows])
    assert asked == [50]


# --- the loop


def read(number: int, offsets: Any, length: int) -> np.ndarray:
    out = np.zeros((len(offsets), length), np.uint8)
    at = out.ctypes.data + np.arange(len(offsets)) * length
    read_runs(number, np.array(offsets), at, length, out)
    return out


@pytest.mark.parametrize("count", [3, 40])
def test_the_end_of_the_file_names_the_run(number: int, count: int) -> None:
    offsets = [n * 500 for n in range(count)]
    offsets[2] = len(HELD) - 10
    with pytest.raises(UnfinishedError) as raised:
        read(number, offsets, 100)
    assert (raised.value.run, raised.value.cause) == (2, None)


@pytest.mark.skipif(not hasattr(os, "RWF_NOWAIT"), reason="needs preadv2")
def test_uncached_runs_are_announced_together(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ring, "_usable", False)
    asked: list[tuple[int, int]] = []
    monkeypatch.setattr(
        os, "posix_fadvise", lambda file, offset, length, advice: asked.append((offset, length))
    )
    real, offsets = os.preadv, [9000, 0, 50_000, 20_000]
    read(number, offsets, 10)  # cached after this
    asked.clear()
    assert_array_equal(read(number, offsets, 10)[2], HELD[50_000:50_010])
    assert asked == []

    def not_cached(file: int, buffers: Any, offset: int, flags: int = 0) -> int:
        if flags and offset == 50_000:
            raise BlockingIOError(errno.EAGAIN, "not cached")
        return real(file, buffers, offset, flags)

    monkeypatch.setattr(os, "preadv", not_cached)
    assert_array_equal(read(number, offsets, 10)[2], HELD[50_000:50_010])
    assert asked == [(50_000, 10), (20_000, 10)]
