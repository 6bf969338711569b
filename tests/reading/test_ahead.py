"""Reading ahead: each batch once, in order, within the memory for batches in flight."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Iterator
from concurrent.futures import CancelledError
from contextlib import closing, suppress
from pathlib import Path
from types import FrameType
from typing import Any

import h5py
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

import oocdata as ooc
from oocdata import memory as memory_module
from oocdata.engines import buffers
from oocdata.engines.cache import cache
from oocdata.errors import DatasetGoneError
from oocdata.memory import Account, account, batch_share, cache_share
from oocdata.reading import ahead as ahead_module
from oocdata.reading.ahead import Reader
from oocdata.runs import run_bytes

pytestmark = pytest.mark.usefixtures("own_account")

ROW = 1 << 17
"""Elements of a row of 1 MiB."""


@pytest.fixture
def memory() -> Iterator[Any]:
    """Return `set_memory` in MiB; restore the limit after the test."""
    before = ooc.memory_limit()
    yield lambda mebibytes: ooc.set_memory(mebibytes << 20)
    ooc.set_memory(before)


class Slow:
    """Rows of 1 MiB, delivered when the test allows it; records the rows requested."""

    shape, dtype = (64, ROW), np.dtype("f8")

    def __init__(self) -> None:
        self.begun: list[int] = []
        self.go = threading.Semaphore(0)
        self.changed = threading.Condition()

    def read_rows(self, rows: np.ndarray, out: np.ndarray) -> None:
        with self.changed:
            self.begun += rows.tolist()
            self.changed.notify_all()
        assert self.go.acquire(timeout=60)
        out[...] = rows[:, None]

    def wait(self, count: int) -> None:
        """Wait until `count` rows have been requested."""
        with self.changed:
            assert self.changed.wait_for(lambda: len(self.begun) >= count, 60)


@pytest.mark.parametrize(
    ("mebibytes", "parallel", "prefetch", "ahead"),
    [
        (1024, 2, 0, 2),  # runs of 8 steps
        (1024, 3, 16, 5),
        (6, 3, 4, 2),  # 4 MiB for batches: two ahead, one handed out, one in use
        (1, 3, 4, 1),
        (1, 1, 0, 1),
    ],
)
def test_runs_in_flight(
    memory: Any, mebibytes: int, parallel: int, prefetch: int, ahead: int
) -> None:
    memory(mebibytes)
    source = Slow()
    loader = ooc.open(source).batches(1)
    assert loader.steps_together == (8 if mebibytes > 100 else 1)
    source.go.release(100)
    iterator = loader.epoch(0, parallel=parallel, prefetch=prefetch)
    runs = loader.steps_together
    for step in range(3):
        batch = next(iterator)
        assert batch[0, 0] == step
        assert account().nbytes <= max(batch_share(cached=False), 2 * run_bytes(loader, runs))
        assert account().nbytes == (ahead + 1) * run_bytes(loader, runs)
    iterator.close()
    assert account().nbytes == 0


def test_reads_of_a_pass_that_was_broken_off_take_the_room_of_the_next(memory: Any) -> None:
    """Otherwise a pass that begins right after a break had its own runs in flight besides."""
    memory(64)
    running, most, free = 0, 0, threading.Event()
    changed = threading.Condition()

    def wait(x: np.ndarray) -> np.ndarray:
        nonlocal running, most
        with changed:
            running, most = running + 1, max(most, running + 1)
            changed.notify_all()
        assert x[0] < 1 or free.wait(60)
        with changed:
            running -= 1
        return x

    mapped = ooc.open(np.arange(64.0)).map(wait, spec=ooc.ArraySpec((), np.dtype("f8")))
    loader = mapped.batches(1)
    for _ in range(2):
        iterator = loader.epoch(0, parallel=4, prefetch=0)
        next(iterator)
        with changed:
            assert changed.wait_for(lambda: running >= 4, 60)
        iterator.close()
    assert account().nbytes == 0
    assert most <= 4 + 1  # each pass may always read one run
    free.set()
    while account().ending:
        time.sleep(0.001)
    assert len(list(loader.epoch(0, parallel=4))) == 64


def test_a_run_that_was_not_begun_when_its_pass_was_closed_is_not_empty() -> None:
    """A thread that still waits for it must not take it for a run without batches."""
    begun, free = threading.Event(), threading.Event()

    def wait(x: np.ndarray) -> np.ndarray:
        begun.set()
        assert free.wait(60)
        return x

    mapped = ooc.open(np.arange(8.0)).map(wait, spec=ooc.ArraySpec((), np.dtype("f8")))
    loader = mapped.batches(1)
    reader = Reader(loader, parallel=1, prefetch=2, runs_in_use=1)
    runs = reader.begin(loader.pass_from(0))
    runs._begin()
    assert begun.wait(60)
    not_begun = runs._ahead[1]
    runs.close()
    free.set()
    with pytest.raises(CancelledError):
        not_begun()
    reader.close()


def test_a_read_that_hangs_does_not_block_the_next_pass() -> None:
    begun, free = threading.Event(), threading.Event()

    def wait(x: np.ndarray) -> np.ndarray:
        if x[0] == 1:
            begun.set()
            assert free.wait(60)
        return x

    mapped = ooc.open(np.arange(8.0)).map(wait, spec=ooc.ArraySpec((), np.dtype("f8")))
    loader = mapped.batches(1)
    with closing(Reader(loader, parallel=1, prefetch=1, runs_in_use=1)) as reader:
        for _ in range(3):
            runs = reader.begin(loader.pass_from(0))
            (batch,) = runs.read() or []
            assert_array_equal(batch, [0])
            assert begun.wait(60)
            begun.clear()
            runs.close()
        free.set()


def test_later_passes_are_read_by_the_same_threads() -> None:
    """In new threads, malloc kept the memory of their temporary arrays once more for each pass."""
    threads: set[threading.Thread] = set()

    def note(x: np.ndarray) -> np.ndarray:
        threads.add(threading.current_thread())
        return x

    mapped = ooc.open(np.arange(64.0)).map(note, spec=ooc.ArraySpec((), np.dtype("f8")))
    loader = mapped.batches(1)
    reader = Reader(loader, parallel=3, prefetch=0, runs_in_use=1)
    for epoch in range(4):
        runs = reader.begin(loader.pass_from(epoch))
        while runs.read() is not None:
            pass
    assert len(threads) <= 3
    reader.close()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads)


def test_at_least_one_run_is_read_and_one_in_use(memory: Any) -> None:
    memory(1)
    source = Slow()
    iterator = ooc.open(source).batches(1).epoch(0, parallel=8, prefetch=8)
    source.go.release()
    next(iterator)
    source.wait(2)
    assert source.begun == [0, 1]  # no more until the next batch is requested
    source.go.release(100)
    next(iterator)
    source.wait(3)
    assert source.begun == [0, 1, 2]
    iterator.close()


def test_all_iterations_share_the_memory(memory: Any) -> None:
    memory(11)  # 8 MiB for batches, where nothing is cached
    view = ooc.open(np.zeros((64, ROW)))
    first = view.batches(1).epoch(0, parallel=4, prefetch=8)
    next(first)
    alone = account().nbytes
    assert 4 << 20 < alone <= batch_share(cached=False)
    second = view.batches(1).epoch(0, parallel=4, prefetch=8)
    next(second)
    assert account().nbytes <= batch_share(cached=False) + (
        2 << 20
    )  # each iteration may always read one run
    list(first)
    next(second)
    next(second)
    assert 4 << 20 < account().nbytes <= batch_share(cached=False)
    second.close()
    assert account().nbytes == 0


@pytest.mark.parametrize("way", ["NumPy", "tf.data"])
def test_many_loaders_share_the_memory(
    memory: Any, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Runs get shorter: each had read two of 128 steps, however many loaders were alive."""
    allocate, allocated = buffers._pool._allocate, set[int]()

    def noted(nbytes: int, *rest: Any) -> Any:
        allocated.add(nbytes)
        return allocate(nbytes, *rest)

    monkeypatch.setattr(buffers._pool, "_allocate", noted)
    memory(8)  # 2 MiB for batches, beside chunks; runs of 512 KiB for one loader
    view = ooc.open(np.arange(4096.0)[:, None] + np.zeros(512))
    loaders = [view.batches(1, shuffle=True, seed=seed) for seed in range(16)]
    assert loaders[0].steps_together == 128
    account().cached = lambda: 1
    datasets = [loader.to_tf() for loader in loaders] if way == "tf.data" else loaders
    iterators = [iter(dataset) for dataset in datasets]
    most = 0
    for step in range(200):
        for loader, iterator in zip(loaders, iterators, strict=True):
            assert_array_equal(next(iterator), loader.batch(step))
            most = max(most, account().nbytes)
    assert batch_share() // 4 < most <= batch_share() + 16 * 2 * loaders[0].batch_bytes
    assert 2 * loaders[0].batch_bytes in allocated  # no room for a run of 128 steps


def test_inputs_of_functions_are_counted(memory: Any) -> None:
    memory(16)
    view = ooc.open(np.zeros((64, ROW)))
    loader = view.map(lambda x: x[:, 0]).batches(2)
    assert loader.input_bytes() == 2 * 8 * ROW
    assert view.batches(2).input_bytes() == 0
    iterator = loader.epoch(0, parallel=8, prefetch=30)
    next(iterator)
    assert account().nbytes <= max(
        batch_share(cached=False), 2 * (loader.input_bytes() + run_bytes(loader, 1))
    )
    iterator.close()


@pytest.mark.parametrize(("parallel", "prefetch"), [(1, 0), (4, 9)])
def test_every_batch_of_workers_once_in_order(parallel: int, prefetch: int) -> None:
    array = np.arange(997 * 4.0).reshape(997, 4)
    loader = ooc.open(array).batches(8, shuffle=True, seed=3, workers=1)
    found = list(loader.epoch(2, 5, parallel=parallel, prefetch=prefetch))
    assert_array_equal(np.concatenate(found), np.concatenate(
        [array[loader.positions(step, 2)] for step in range(5, len(loader))]
    ))  # fmt: skip


def test_a_dropped_iterator_releases_its_memory() -> None:
    loader = ooc.open(np.zeros((100, 4))).batches(4)
    iterator = iter(loader)
    next(iterator)
    assert account().nbytes > 0
    del iterator
    assert account().nbytes == 0


def test_an_error_is_raised_at_its_step_and_releases_all_memory() -> None:
    def refuse(x: np.ndarray) -> np.ndarray:
        if x[0] == 40:
            raise ZeroDivisionError("by nothing")
        return x

    mapped = ooc.open(np.arange(100.0)).map(refuse, spec=ooc.ArraySpec((), np.dtype("f8")))
    iterator = mapped.batches(10).epoch(0, parallel=4, prefetch=8)
    for step in range(4):
        assert_array_equal(next(iterator), np.arange(step * 10.0, step * 10 + 10))
    with pytest.raises(ZeroDivisionError, match="by nothing"):
        next(iterator)
    assert account().nbytes == 0


def test_a_failed_pass_holds_no_batch_that_was_read_ahead() -> None:
    """The exception refers to the frames of the pass: a notebook keeps both."""
    made: list[weakref.ref[Any]] = []
    others_are_read = threading.Event()

    def double(rows: Any) -> Any:
        if 0 in rows:
            assert others_are_read.wait(60)
            raise ValueError("no zero")
        if made:  # the thread that runs this has ended the run before
            others_are_read.set()
        doubled = rows * 2
        made.append(weakref.ref(doubled))
        return doubled

    mapped = ooc.open(np.arange(12.0)).map(double, spec=ooc.ArraySpec((), np.dtype("f8")))
    loader = mapped.batches(2)
    with pytest.raises(ValueError, match="no zero") as caught:
        next(loader.epoch(0, parallel=2, prefetch=3))
    assert made[0]() is None
    assert caught.tb is not None


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_fork_can_start_reading() -> None:
    loader = ooc.open(np.arange(400.0)).batches(10)
    iterator = iter(loader)
    next(iterator)
    holds, let_go = threading.Event(), threading.Event()

    def hold() -> None:
        with account()._lock:
            holds.set()
            let_go.wait()

    other = threading.Thread(target=hold)
    other.start()
    holds.wait()
    child = os.fork()
    if child == 0:  # pragma: no cover
        signal.alarm(20)  # in case it waits for a lock that the other thread holds
        try:
            while True:
                next(iterator)
        except DatasetGoneError as error:
            fine = "in the process that began to read them" in str(error)
            fine = fine and account().nbytes == 0 and len(list(loader.epoch(0))) == 40
            os._exit(0 if fine else 1)
        os._exit(2)
    let_go.set()
    other.join()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert len(list(iterator)) == 39


def test_ctrl_c_anywhere_releases_all_memory() -> None:
    rows = np.arange(40)
    loader = ooc.open(rows).batches(4)
    modules = {memory_module.__file__, ahead_module.__file__}
    left, lines = 0, 0

    def press(frame: FrameType, event: str, _: object) -> Any:
        nonlocal left
        code = frame.f_code
        if code.co_filename not in modules or code.co_name == "end":  # called by a finalizer too
            return None
        left -= event == "line"
        if not left:
            raise KeyboardInterrupt
        return press

    while left <= 0:
        lines += 1
        left, batches = lines, loader.epoch(0)
        sys.settrace(press)
        with suppress(KeyboardInterrupt):
            assert_array_equal(next(batches), rows[:4])
            assert_array_equal(next(batches), rows[4:8])
            batches.close()
        sys.settrace(None)
        del batches
        while account().nbytes:  # threads finish the reads that they began
            pass
    assert lines > 40
    assert_array_equal(np.concatenate(list(loader)), rows)


@given(
    st.lists(st.tuples(st.integers(1, 1 << 30), st.booleans(), st.booleans()), max_size=20),
    st.booleans(),
)
def test_the_account_is_balanced(takes: list[tuple[int, bool, bool]], chunks: bool) -> None:
    kept = Account(lambda: int(chunks))
    taken = []
    for nbytes, always, cached in takes:
        before, share = kept.nbytes, batch_share(cached=cached or chunks)
        if kept.take(cached, nbytes, always=always, cached=cached):
            taken.append((nbytes, cached))
            assert always or kept.nbytes <= share
        else:
            assert before + nbytes > share
        assert kept.nbytes == sum(nbytes for nbytes, _ in taken)
        uncached = sum(nbytes for nbytes, cached in taken if not cached)
        assert kept.borrowed == max(0, uncached - batch_share())
    for nbytes, cached in taken:
        kept.give(cached, nbytes)
    assert kept.nbytes == kept.borrowed == 0
    for owner in (True, False):
        assert kept.take(owner, 1, always=True, cached=owner)
        kept.end(owner)
        kept.end(owner)
    assert kept.nbytes == kept.borrowed == 0


def test_an_account_is_not_locked_while_chunks_are_counted() -> None:
    """The collector may end an iteration in a thread that holds the chunk cache's lock."""
    waited = []

    def cached() -> int:
        other = threading.Thread(target=kept.take, args=(1, 1), daemon=True)
        other.start()
        other.join(30)
        waited.append(other.is_alive())
        return 0

    kept = Account(cached)
    assert kept.take(0, 1, cached=False)
    assert waited == [False]


def test_batches_take_no_memory_that_chunks_need(tmp_path: Path, memory: Any) -> None:
    memory(32)
    cache.forget()  # other tests' chunks
    account().cached = lambda: cache.nbytes
    rows = np.zeros((64, ROW))
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("x", data=rows, chunks=(1, ROW), compression="gzip", shuffle=True)
    loader = ooc.open(rows).batches(1)
    alone = loader.epoch(0, parallel=4, prefetch=64)
    next(alone)
    assert batch_share() < account().nbytes <= batch_share(cached=False)
    chunked = ooc.open(tmp_path / "a.h5")[:, 1:]  # whole chunks would go past the cache
    assert not loader.cached
    assert chunked.batches(1).cached
    borrowed = account().borrowed
    chunked.take(np.arange(48))  # 48 chunks of 512 KB; there is no room for half of them
    assert 0 < cache.nbytes <= cache_share() - borrowed
    for _ in range(62):
        next(alone)
    alone.close()
    again = loader.epoch(0, parallel=4, prefetch=64)
    next(again)
    assert account().nbytes <= batch_share()
    again.close()
    chunked.take(np.arange(48))
    assert cache_share() - borrowed < cache.nbytes <= cache_share()


RESULTS = """
import resource
import numpy as np, oocdata as ooc

loader = ooc.open(np.ones((4096, 2048), "f4")).map(lambda x: x / 255).batches(64)  # 128 pages each
faults = []
for _ in range(6):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for batch in loader:
        pass
    faults.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
assert min(faults) < 16 * len(loader), faults
"""


def test_results_of_functions_use_memory_again() -> None:
    """Of 128 pages a batch, malloc returned 40 to 90 to the kernel, in a fresh process."""
    done = subprocess.run([sys.executable, "-c", RESULTS], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
