"""Forks and exits of a process with workers: nothing hangs, changes or is left behind."""

from __future__ import annotations

import gc
import os
import random
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from worker_scripts import ENDS, ended, leave, left_of, start

import oocdata as ooc
from oocdata.memory import account
from oocdata.reading.workers.pool import WorkerPool, _close_all
from oocdata.runs import Run

SCRIPTS = {
    "a live iterator": "it = iter(view.batches(4)); next(it)",
    "a live iterator with a worker": "it = iter(view.batches(4, workers=1)); next(it)",
    "reads in flight": "it = iter(mapped.batches(4)); next(it)",
    "workers that read": "it = iter(mapped.batches(4, workers=2)); next(it)",
    "a worker that starts": "it = iter(mapped.batches(4, workers=1)); it.__next__",
    "an iterator in a cycle": "a = [iter(view.batches(4, workers=1))]; a.append(a); next(a[0])",
    "an iterator in another thread": """
import threading
it = iter(mapped.batches(4, workers=1)); next(it)
threading.Thread(target=lambda: [None for _ in it], daemon=True).start()
""",
}


@pytest.mark.parametrize(
    ("name", "how"),
    # All others: test_many_exits.
    [*((name, "end") for name in [*SCRIPTS][1:]), ("workers that read", "raise")],
)
def test_an_exit(tmp_path: Path, name: str, how: str) -> None:
    assert leave(tmp_path / "one", SCRIPTS[name], how) is None
    assert left_of(tmp_path) == []


@pytest.mark.thorough
def test_many_exits(tmp_path: Path) -> None:
    rng = random.Random(0)
    scripts = [*SCRIPTS.values()]
    ways = [(str(number), rng.choice(scripts), rng.choice([*ENDS])) for number in range(25)]
    with ThreadPoolExecutor(3) as threads:
        found = threads.map(lambda way: leave(tmp_path / way[0], *way[1:]), ways)
        assert [wrong for wrong in found if wrong] == []
    assert left_of(tmp_path) == []


def read(pool: WorkerPool, step: int) -> Any:
    """Read one batch from a pool."""
    (batch,) = pool.begin(Run(0, step, step + 1))()
    return batch


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
class TestForks:
    def test_a_fork_keeps_its_batches(self) -> None:
        """The parent continues, and the slots of the fork's batches are overwritten."""
        loader = ooc.open(np.arange(4000.0)).batches(10, workers=1)
        pool = WorkerPool(loader, runs_in_use=4)
        kept = [read(pool, step) for step in range(3)]
        begun = pool.begin(Run(0, 3, 4))
        done, go = os.pipe()
        child = os.fork()
        if child == 0:  # pragma: no cover
            os.close(go)
            os.read(done, 1)  # until all slots have been overwritten
            fine = all((kept[step] == loader.batch(step)).all() for step in range(3))
            kept[0][:] = -1
            del kept, begun, pool
            gc.collect()
            os._exit(0 if fine else 1)
        os.close(done)
        assert_array_equal(kept[0], loader.batch(0))
        del kept
        assert_array_equal(begun()[0], loader.batch(3))
        for step in range(4, 40):
            assert_array_equal(read(pool, step), loader.batch(step))
        os.close(go)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert_array_equal(read(pool, 0), loader.batch(0))
        pool.close()

    def test_what_a_fork_writes_stays_in_the_fork(self) -> None:
        loader = ooc.open(np.arange(4000.0)).batches(10, workers=1)
        pool = WorkerPool(loader, runs_in_use=4)
        batch = read(pool, 0)
        child = os.fork()
        if child == 0:  # pragma: no cover
            batch[:] = -1
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        assert_array_equal(batch, loader.batch(0))
        pool.close()

    def test_a_fork_does_not_end_the_workers_of_its_parent(self) -> None:
        loader = ooc.open(np.arange(4000.0)).batches(10, workers=1)
        iterator = iter(loader)
        next(iterator)
        child = os.fork()
        if child == 0:  # pragma: no cover
            try:
                while True:
                    next(iterator)
            except ooc.errors.DatasetGoneError:
                iterator.close()
                _close_all()
                os._exit(account().nbytes)
            os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        rest = np.concatenate(list(iterator))
        assert_array_equal(rest, np.arange(10.0, 4000))

    def test_many_threads_that_fork(self) -> None:
        loader = ooc.open(np.arange(4000.0)).batches(10, workers=1)
        pool = WorkerPool(loader, runs_in_use=2)
        ended: list[int] = []

        def forking() -> None:
            for _ in range(2):
                child = os.fork()
                if child == 0:  # pragma: no cover
                    os._exit(0)
                ended.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))

        threads = [threading.Thread(target=forking) for _ in range(4)]
        for thread in threads:
            thread.start()
        for step in range(100):
            assert_array_equal(read(pool, step), loader.batch(step))
        for thread in threads:
            thread.join()
        assert ended == [0] * 8
        pool.close()

    def test_a_fork_does_not_keep_workers_alive(self, tmp_path: Path) -> None:
        """The fork inherits the other ends of all pipes that workers listen to."""
        script = """
        it = iter(view.batches(4, workers=2)); next(it)
        pids = workers()
        if os.fork() == 0:
            say("forked")
            for pid in pids:
                try:
                    import select
                    select.select([os.pidfd_open(pid)], [], [])
                except ProcessLookupError:
                    pass
            say("gone")
            os._exit(0)
        os.kill(os.getpid(), signal.SIGKILL)
        """
        process = start(tmp_path, script)
        out, err = ended(process)
        assert out.split() == ["forked", "gone"], err
