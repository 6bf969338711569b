"""Worker processes: the same batches, through shared memory, from any kind of script."""

from __future__ import annotations

import gc
import importlib
import os
import pickle
import resource
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from worker_scripts import ended, start, wait_until_gone

import oocdata as ooc
from oocdata.datasets.spec import leaves
from oocdata.describe.functions import constants_read
from oocdata.engines.buffers import ALIGNMENT, side_by_side
from oocdata.errors import ArgumentError, DatasetGoneError, MapError, WorkerError
from oocdata.memory import DEFAULT_MEMORY, account, set_memory
from oocdata.reading.ahead import ReadAhead, Reader
from oocdata.reading.workers.child import copy_to_slot
from oocdata.reading.workers.pool import TASKS, WorkerPool, pools
from oocdata.reading.workers.sharing import share_loader
from oocdata.runs import Pass, Run, run_bytes

pytestmark = pytest.mark.usefixtures("own_account")

DOUBLES = ooc.ArraySpec((4,), np.dtype("f8"))


@pytest.fixture
def view(tmp_path: Path) -> ooc.View:
    np.save(tmp_path / "a.npy", np.arange(4012.0).reshape(1003, 4))
    return ooc.open(tmp_path / "a.npy")


def assert_same(got: Any, expected: Any) -> None:
    """Compare batches of any tree structure, and their order."""
    for one, other in zip(got, expected, strict=True):
        for array, truth in zip(leaves(one), leaves(other), strict=True):
            assert array.dtype == truth.dtype
            assert_array_equal(array, truth)


def every(runs: ReadAhead) -> list[Any]:
    """Return the remaining batches of a pass."""
    found = []
    while batches := runs.read():
        found += batches
    return found


def in_memory(view: ooc.View) -> ooc.Dataset:
    return ooc.open(np.asarray(view)[::2])  # also: strided


MAKES: dict[str, Callable[[ooc.View], ooc.Dataset]] = {
    "rows": lambda view: view,
    "an array in memory": in_memory,
    "pairs": lambda view: view.next_frame(),
    "windows": lambda view: view.windows(3, 2, shift=2),
    "a dict": lambda view: ooc.zip({"row": view, "other": view[::-1]}),
    "rows of a mask": lambda view: view[np.arange(1003) % 3 == 1],
    "rows of no bytes": lambda view: ooc.zip(view, view[:, :0]),
    "scalars of one byte": lambda view: view[:, 0].astype("u1"),
}
MAPPED: dict[str, Callable[[ooc.View], ooc.Dataset]] = {
    "one mapped, one not": lambda view: ooc.zip(view, view.map(lambda x: x[:, ::2] * 2)),
    "bytes": lambda view: ooc.zip(view, view.map(lambda x: b"x" * int(x[0] % 7), batched=False)),
    "a big-endian result": lambda view: view.map(lambda x: x.astype(">f4")),
    "in place": lambda view: view.map(lambda x: np.add(x, 1, out=x)),
    "by element": lambda view: view.map(lambda x: x.sum(), batched=False),
}


@pytest.mark.parametrize("makes", [MAKES, MAPPED], ids=["read together", "mapped"])
def test_batches_do_not_depend_on_workers(view: ooc.View, makes: Any) -> None:
    # All in one dataset, because a process takes longer to start than to read.
    dataset = ooc.zip({name: make(view)[:300] for name, make in makes.items()})
    alone = dataset.batches(8, shuffle="global", seed=3)
    loader = dataset.batches(8, shuffle="global", seed=3, workers=2)
    assert_same(loader.epoch(1), alone.epoch(1))


def test_shards_short_batches_and_starts_in_the_middle(view: ooc.View) -> None:
    options: dict[str, Any] = {"shuffle": True, "seed": 3, "drop_remainder": True}
    alone, loader = view.batches(10, **options), view.batches(10, **options, workers=1)
    assert_same(loader.shard(2, 1).epoch(0, start=97), alone.shard(2, 1).epoch(0, start=97))
    assert list(loader.epoch(0, start=100)) == []


MODULE = """
SIZE, calls = 1, 0
class Config: ...
config = Config()
config.shift = 0
def scale(x):
    global calls
    calls += 1
    return x * SIZE
def shift(x):
    return scale(x) + config.shift
class Shift:
    def __call__(self, x):
        return shift(x)
    def method(self, x):
        return self(x)
class Inherited(Shift): ...
"""

READ: dict[str, Callable[[Any], Callable[..., Any]]] = {
    "a function": lambda module: module.shift,
    "of a closure": lambda module: (lambda fn: lambda x: fn(x))(module.shift),
    "a partial": lambda module: partial(lambda fn, x: fn(x), module.shift),
    "an object": lambda module: module.Inherited(),
    "a method": lambda module: module.Shift().method,
    "of the script": lambda module: eval("lambda x: own.SIZE + own.shift(x)", {"own": module}),
}


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    (tmp_path / "functions_of_a_user.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    yield importlib.import_module("functions_of_a_user")
    del sys.modules["functions_of_a_user"]


def test_a_module_that_the_program_has_changed(view: ooc.View, module: Any, tmp_path: Path) -> None:
    """A worker process would import it as it was, and give other numbers."""
    mapped = view.map(module.shift)
    assert_same(mapped.batches(500, workers=1).epoch(0), mapped.batches(500).epoch(0))
    assert module.calls
    module.SIZE = 3
    message = r"functions_of_a_user\.SIZE is 3, but 1 in a worker process"
    with pytest.raises(ArgumentError, match=message):
        mapped.cache(tmp_path / "cache", workers=1)
    assert_array_equal(mapped.cache(tmp_path / "cache").take([2]), view.take([2]) * 3)


@pytest.mark.parametrize("kind", READ)
def test_constants_that_functions_read(module: Any, kind: str) -> None:
    fn = READ[kind](module)
    before = constants_read([fn])
    for change in ({"SIZE": 2}, {"config": module.Config()}):
        vars(module).update(change)
        module.config.shift = 0.5
        changed = constants_read([fn])
        assert changed.keys() == before.keys()
        assert changed != before
    assert not any("calls" in name for name in before)


def test_tuples_that_functions_read(module: Any) -> None:
    exec(
        "SIZE, PAIR, LOG = (2, (3,)), (0.5, 'a'), [1]\ndef f(x): return SIZE, PAIR, LOG",
        vars(module),
    )
    assert list(constants_read([module.f]).values()) == ["(0.5, 'a')"]


def test_functions_in_workers(view: ooc.View) -> None:
    """Steps of different duration keep their order, with equal draws; all workers are used.

    The memory of temporary arrays is used again.
    """

    def uneven(x: np.ndarray) -> np.ndarray:
        for _ in range(200_000 if x[0, 0] % 80 == 0 else 10):
            pass
        return x

    def noisy(x: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        return x + rng.normal(size=x.shape)

    def process(x: np.ndarray) -> np.ndarray:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        _ = np.ones(1 << 17) + np.ones(1 << 17)  # 256 pages each
        faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
        return np.full((len(x), 2), (os.getpid(), faults))

    numbers = ooc.zip(view.map(uneven, spec=DOUBLES), view.map(noisy, rng=True, spec=DOUBLES))
    processes = view.map(process)
    options: dict[str, Any] = {"shuffle": True, "seed": 9}
    batches = list(ooc.zip(numbers, processes).batches(4, workers=2, **options))
    assert_same([made for made, _ in batches], numbers.batches(4, **options))
    found = {int(number) for _, each in batches for number, _ in each}
    assert len(found) == 2
    assert os.getpid() not in found
    assert np.median([each[0, 1] for _, each in batches]) < 256


class TestMemory:
    def test_batches_are_copied_to_the_slot(self, view: ooc.View) -> None:
        loader = view.next_frame().batches(10)
        run = Run(0, 2, 5)
        slot = np.zeros(run_bytes(loader, 3), np.uint8)
        batches = loader.read(run)
        answer = copy_to_slot(slot, batches)
        assert len(pickle.dumps(answer)) < 400  # only offsets, shapes and dtypes
        for places, batch in zip(answer, batches, strict=True):
            for (offset, shape, dtype), truth in zip(places, batch, strict=True):
                assert offset % ALIGNMENT == 0
                assert_array_equal(slot[offset : offset + truth.nbytes].view(dtype), truth.ravel())
                assert shape == truth.shape

    def test_a_batch_larger_than_the_slot_is_an_error(self) -> None:
        with pytest.raises(MapError, match="don't fit"):
            copy_to_slot(np.zeros(64, np.uint8), [np.arange(4.0), np.arange(4.0)])

    def test_a_run_is_contiguous_and_has_no_other_owner(self, view: ooc.View) -> None:
        """So TensorFlow may alias the arrays, and the slot is free for the next run at once."""
        with closing(WorkerPool(view.next_frame().batches(16, workers=1), runs_in_use=2)) as pool:
            batches = pool.begin(Run(0, 0, 3))()
            for arrays in zip(*batches, strict=True):
                found = side_by_side(arrays)
                assert found is not None
                assert_array_equal(found, np.stack(arrays))
            assert sorted(pool._free) == [0, 1]
            for number in range(3):
                pool.begin(Run(1, number, number + 1))()
            assert_same(batches, list(view.next_frame().batches(16))[:3])

    def test_kept_batches_do_not_block_reading(self, view: ooc.View) -> None:
        loader = view.batches(4, shuffle=True, workers=2)
        pool = WorkerPool(loader, runs_in_use=2)
        runs = [Run(0, step, step + 1) for step in range(len(loader))]
        kept = [batch for run in runs for batch in pool.begin(run)()]
        assert len(pool._free) == 2 * TASKS
        pool.close()
        assert_same(kept, view.batches(4, shuffle=True))  # the memory outlives the workers

    def test_slots_for_runs_being_read_and_in_use(self, view: ooc.View) -> None:
        pool = WorkerPool(view.batches(16, workers=2), runs_in_use=4)
        try:
            slots, slot_bytes = pool._slots.shape
            assert slots == 2 * TASKS
            assert account().nbytes == (slots + 4) * slot_bytes
        finally:
            pool.close()
        assert account().nbytes == 0

    @pytest.mark.parametrize(("mebibytes", "slots"), [(1, 1), (16, 2), (512, 4)])
    def test_within_the_memory_for_batches(self, mebibytes: int, slots: int) -> None:
        """With little memory: one run being read and one in use."""
        before = ooc.memory_limit()
        array = np.arange(40 * (1 << 17)).reshape(40, 1 << 17)  # batches of 1 MiB
        ooc.set_memory(mebibytes << 20)
        try:
            loader = ooc.open(array).batches(1, workers=2)
            pool = WorkerPool(loader, runs_in_use=2, together=1)
            assert len(pool._slots) == slots
            pool.close()
            if mebibytes == 1:
                assert_same(loader, ooc.open(array).batches(1))
        finally:
            ooc.set_memory(before)

    def test_no_batch_ever_changes(self, view: ooc.View) -> None:
        rng = np.random.default_rng(0)
        loader = view.batches(4, shuffle=True, workers=2)
        kept: list[tuple[Any, Any]] = []
        for step, batch in enumerate(loader.epoch(2)):
            if rng.random() < 0.2:
                kept.append((batch, loader.batch(step, 2)))
            if len(kept) > 10:
                del kept[int(rng.integers(10))]
            for old, expected in kept:
                assert_array_equal(old, expected)

    def test_a_function_may_keep_its_input(self, view: ooc.View) -> None:
        kept: list[tuple[np.ndarray, np.ndarray]] = []

        def keeping(x: np.ndarray) -> np.ndarray:
            kept.append((x, x.copy()))
            return np.full(len(x), all((one == other).all() for one, other in kept))

        assert all(batch.all() for batch in view.map(keeping).batches(20, workers=1))

    def test_arrays_in_the_description_are_not_pickled_and_may_be_changed(self) -> None:
        table = np.zeros(1_000_000)

        def counting(x: np.ndarray) -> np.ndarray:
            table[0] += 1  # each worker has its own copy, as of a global
            return x + table[0] - table[0]

        array = np.arange(1000.0)
        mapped = ooc.open(array).map(counting, spec=ooc.ArraySpec((), np.dtype("f8")))
        assert_same(mapped.batches(100, workers=1), ooc.open(array).batches(100))
        assert table[0] == 0


class TestPool:
    def test_a_closed_pool_stays_closed(self, view: ooc.View) -> None:
        pool = WorkerPool(view.batches(4, workers=1), runs_in_use=2)
        call = pool.begin(Run(0, 0, 1))
        pool.close()
        pool.close()
        with pytest.raises(DatasetGoneError, match="ended"):
            call()
        with pytest.raises(DatasetGoneError, match="ended"):
            pool.begin(Run(0, 0, 1))

    def test_a_closed_pool_is_deleted_at_exit(
        self, view: ooc.View, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """At exit the interpreter sets globals to None; pools have been closed before."""
        held = WorkerPool(view.batches(4, workers=1), runs_in_use=2)
        held.close()
        monkeypatch.setattr("oocdata.reading.workers.pool.account", None)
        held.__del__()

    def test_many_threads(self, view: ooc.View) -> None:
        """Each iterates over the loader by itself, with worker processes of its own."""
        loader, alone = (view.batches(16, shuffle=True, workers=workers) for workers in (1, 0))
        with ThreadPoolExecutor(4) as threads:
            epochs = threads.map(lambda number: list(loader.epoch(number)), range(8))
            for number, batches in enumerate(epochs):
                assert_same(batches, alone.epoch(number))

    @pytest.mark.parametrize("given", ["0", "soon", "-1", "nan"])
    def test_the_limit_must_be_a_number(
        self, view: ooc.View, monkeypatch: pytest.MonkeyPatch, given: str
    ) -> None:
        monkeypatch.setenv("OOCDATA_WORKER_SECONDS", given)
        with pytest.raises(ArgumentError, match="OOCDATA_WORKER_SECONDS"):
            next(iter(view.batches(4, workers=1)))


class TestFromPassToPass:
    """The `Reader` of `to_tf` keeps its workers from one pass to the next."""

    @pytest.fixture
    def alone(self, view: ooc.View) -> ooc.Loader:
        return view.batches(16, shuffle=True)

    @pytest.fixture
    def loader(self, view: ooc.View) -> ooc.Loader:
        return view.batches(16, shuffle=True, workers=1)

    @pytest.fixture
    def reader(self, loader: ooc.Loader) -> Iterator[Reader]:
        with closing(Reader(loader, 2, 0, runs_in_use=2)) as reader:
            yield reader

    def pass_of(self, loader: ooc.Loader, together: int = 1) -> Pass:
        return Pass(0, len(loader), len(loader), together)

    @pytest.fixture(autouse=True)
    def others(self) -> None:
        self.of_others = set(pools)

    def pids(self) -> set[int]:
        return {worker.pid for pool in set(pools) - self.of_others for worker in pool._workers}

    def test_workers_are_kept(self, loader: ooc.Loader, alone: ooc.Loader, reader: Reader) -> None:
        assert_same(every(reader.begin(self.pass_of(loader))), alone.epoch(0))
        pids = self.pids()
        assert len(pids) == 1
        left = reader.begin(self.pass_of(loader))
        left.read()
        left.close()
        assert_same(every(reader.begin(self.pass_of(loader), number=3)), alone.epoch(0, 3))
        assert self.pids() == pids

    def test_simultaneous_passes_have_separate_workers(
        self, loader: ooc.Loader, alone: ooc.Loader, reader: Reader
    ) -> None:
        one, other = (reader.begin(self.pass_of(loader)) for _ in range(2))
        for batch in alone:
            assert_same(one.read() or [], [batch])
            assert_same(other.read() or [], [batch])
        assert len(self.pids()) == 2

    def test_after_a_death(self, loader: ooc.Loader, alone: ooc.Loader, reader: Reader) -> None:
        runs = reader.begin(self.pass_of(loader))
        runs.read()
        dead = self.pids()
        for pid in dead:
            os.kill(pid, signal.SIGKILL)
        with pytest.raises(WorkerError):
            every(runs)
        runs.close()
        assert_same(every(reader.begin(self.pass_of(loader))), alone.epoch(0))
        assert not self.pids() & dead

    def test_runs_longer_than_a_slot(
        self, loader: ooc.Loader, alone: ooc.Loader, reader: Reader
    ) -> None:
        """Such runs come from an iterator that was saved with a higher memory limit."""
        every(reader.begin(self.pass_of(loader)))
        together = loader.steps_together + 2
        assert_same(every(reader.begin(self.pass_of(loader, together))), alone.epoch(0))

    def test_workers_end_with_the_reader(self, loader: ooc.Loader, reader: Reader) -> None:
        running = reader.begin(self.pass_of(loader))
        running.read()
        reader.close()
        running.close()
        assert not self.pids()


class TestFromEpochToEpoch:
    """A loader that is iterated over keeps its workers, as long as they compute the same."""

    @pytest.fixture(autouse=True)
    def others(self) -> None:
        self.of_others = set(pools)

    def pids(self) -> set[int]:
        return {worker.pid for pool in set(pools) - self.of_others for worker in pool._workers}

    def test_all_epochs_have_the_same_workers(self, view: ooc.View) -> None:
        loader, alone = (view.batches(16, shuffle=True, workers=workers) for workers in (2, 0))
        assert_same(loader, alone)
        pids = self.pids()
        assert len(pids) == 2
        left = iter(loader)  # another part of the epoch is read, and dropped
        next(left)
        del left
        for epoch in (1, 2):
            assert_same(loader.epoch(epoch, 3), alone.epoch(epoch, 3))
        assert self.pids() == pids
        del loader
        gc.collect()
        assert not self.pids()

    def test_a_function_that_would_go_on_for_long(self, view: ooc.View, tmp_path: Path) -> None:
        """Workers that are busy with an epoch that was left are not waited for."""

        def once(x: np.ndarray) -> np.ndarray:
            if x[0, 0] > 0 and not (tmp_path / "begun").exists():
                (tmp_path / "begun").touch()
                threading.Event().wait()
            return x

        loader = view.map(once, spec=DOUBLES).batches(16, workers=1)
        next(iter(loader))
        pids = self.pids()
        while not (tmp_path / "begun").exists():
            os.sched_yield()
        assert_same(loader, view.batches(16))
        assert not self.pids() & pids

    def test_what_a_function_holds_has_changed(self, view: ooc.View) -> None:
        class Scale:
            factor = 2.0

            def __init__(self) -> None:
                self.offsets = np.zeros(4)

            def __call__(self, x: np.ndarray) -> np.ndarray:
                return x * self.factor + self.offsets

        scale = Scale()
        loader, alone = (view.map(scale).batches(100, workers=workers) for workers in (1, 0))
        seen = []
        for number in range(3):
            assert_same(loader, alone)
            seen.append(self.pids())
            if number == 0:
                scale.factor = 3.0
            else:
                scale.offsets[2] = 7  # in place, in an array that is not part of the pickle
        assert [len(pids) for pids in seen] == [1, 1, 1]
        assert len(set.union(*seen)) == 3

    def test_numbers_in_memory_have_changed(self) -> None:
        numbers = np.arange(100.0)
        loader = ooc.open(numbers).batches(10, workers=1)
        next(iter(loader))
        pids = self.pids()
        numbers[:] = -1
        assert_same(loader, [np.full(10, -1.0)] * 10)
        assert not self.pids() & pids

    def test_the_memory_limit_has_changed(self) -> None:
        def of_this_process(x: np.ndarray) -> np.ndarray:
            from oocdata.memory import memory_limit

            return np.full(len(x), memory_limit())

        loader = ooc.open(np.arange(100)).map(of_this_process).batches(10, workers=2)
        try:
            for nbytes in (64 << 20, 16 << 20, 128 << 20):
                set_memory(nbytes)
                assert_same(loader, [np.full(10, nbytes // 2)] * 10)
        finally:
            set_memory(DEFAULT_MEMORY)

    def test_after_a_death(self, view: ooc.View) -> None:
        loader = view.batches(16, workers=1)
        iterator = iter(loader)
        next(iterator)
        for pid in self.pids():
            os.kill(pid, signal.SIGKILL)
        with pytest.raises(WorkerError):
            list(iterator)
        assert_same(loader, view.batches(16))
        del iterator
        for pid in self.pids():  # while they are idle
            os.kill(pid, signal.SIGKILL)
        wait_until_gone(self.pids())
        assert_same(loader, view.batches(16))


class TestPickling:
    @pytest.mark.parametrize(
        ("held", "reason"),
        [
            (threading.Lock(), "cannot pickle '_thread.lock'"),
            (iter([]).__class__, None),
            ((n for n in range(3)), "cannot pickle 'generator'"),
        ],
        ids=["a lock", "a class", "a generator"],
    )
    def test_a_function_that_cannot_be_pickled_is_refused(
        self, view: ooc.View, held: Any, reason: str | None
    ) -> None:
        def needing(x: np.ndarray) -> np.ndarray:
            _ = held
            return x

        dataset = ooc.zip(view, view.map(needing, spec=DOUBLES).map(lambda x: x, spec=DOUBLES))
        if reason is None:
            dataset.batches(4, workers=2)
            return
        with pytest.raises(ArgumentError, match=rf"`workers`.*needing.*{reason}") as caught:
            dataset.batches(4, workers=2)
        assert caught.value.__cause__ is not None
        dataset.batches(4).batch(0)  # it works without workers

    def test_an_open_file_is_refused(self, tmp_path: Path) -> None:
        h5py = pytest.importorskip("h5py")
        with h5py.File(tmp_path / "a.h5", "w") as file:
            file["u"] = np.zeros((10, 3))
            file.flush()
            view = ooc.open(file["u"])
            with pytest.raises(ArgumentError, match=r"`workers`.*open data by its path"):
                view.batches(2, workers=1)

    def test_buffers_are_not_pickled(self) -> None:
        rows = np.random.default_rng(0).permutation(100_000)
        table = np.zeros(100_000)
        loader = ooc.open(np.zeros(100_000))[rows].map(lambda x: x + table[0]).batches(10)
        descriptor, lengths = share_loader(loader)
        os.close(descriptor)
        assert lengths[0] < 10_000
        assert sorted(lengths[1:]) == [800_000] * 3

    @pytest.mark.parametrize("given", [-1, 1.5, "2", True])
    def test_workers_must_be_a_count(self, view: ooc.View, given: Any) -> None:
        with pytest.raises(ArgumentError, match="workers"):
            view.batches(4, workers=given)

    def test_no_worker_starts_before_the_first_read(self, view: ooc.View) -> None:
        gc.collect()
        before = len(pools)
        iterator = iter(view.batches(4, workers=1))
        assert len(pools) == before
        next(iterator)
        assert len(pools) == before + 1


class TestScripts:
    def test_a_script_needs_no_guard(self, tmp_path: Path) -> None:
        """The script's functions are pickled by value, so the script runs once."""
        (tmp_path / "beside.py").write_text("def half(x): return x / 2\n")
        script = """
        say("begun")
        import beside
        factor = 3
        class Scaled:
            def __call__(self, x): return beside.half(x * factor)
        class Refused(Exception):
            def __init__(self, step, text): super().__init__(text); self.step = step
        mapped = view.map(Scaled()).map(lambda x: x + 1)
        same = [(a == b).all() for a, b in zip(mapped.batches(9, workers=2), mapped.batches(9))]
        say(len(same), all(same))
        def refuse(x):
            print("printed in a worker")
            raise Refused(3, "no")
        try:
            list(view.map(refuse, spec=spec).batches(9, workers=1))
        except Refused as error:
            say(type(error) is Refused, error.step, "in refuse" in error.__notes__[-1])
        """
        out, err = ended(start(tmp_path, script))
        assert err == ""
        lines = out.splitlines()
        assert lines.count("begun") == 1
        assert "112 True" in lines
        # Two processes write: their lines may be interleaved.
        assert "True 3 True" in out
        assert "printed in a worker" in out

    def test_functions_of_a_script_in_a_spawned_process(self, tmp_path: Path) -> None:
        """There multiprocessing names the script `__mp_main__`, which a worker does not import."""
        script = """
        import multiprocessing
        def twice(x): return 2 * x
        class Scaled:
            def __call__(self, x): return 3 * twice(x)
        def train():
            batches = list(view.map(twice, spec=spec).map(Scaled()).batches(9, workers=1))
            say(len(batches), (np.concatenate(batches) == 12 * np.asarray(view)).all())
        if __name__ == "__main__":
            process = multiprocessing.get_context("spawn").Process(target=train)
            process.start()
            process.join()
        """
        out, err = ended(start(tmp_path, script))
        assert (out, err) == ("112 True\n", "")

    def test_no_framework_is_loaded_in_a_worker(self, tmp_path: Path) -> None:
        script = """
        import tensorflow, keras
        names = {"tensorflow", "keras", "h5py", "zarr"}
        def loaded(x): return np.full(len(x), len(names & set(sys.modules)))
        mapped = view.map(loaded, spec=ooc.ArraySpec((), np.dtype("i8")))
        say(sum(int(batch.numpy().sum()) for batch in mapped.batches(100, workers=1).to_tf()))
        """
        out, err = ended(start(tmp_path, script))
        assert out.split() == ["0"], err

    def test_workers_start_with_a_thousand_files_open(self, tmp_path: Path) -> None:
        """The pipes then have descriptors that select(2) does not accept."""
        script = """
        import resource
        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(most, 4096), most))
        files = [open(os.devnull) for _ in range(1100)]
        say(len(list(view.batches(100, workers=1))))
        """
        out, err = ended(start(tmp_path, script))
        assert (out.split(), err) == (["10"], "")
