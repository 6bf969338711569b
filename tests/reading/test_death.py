"""Workers that raise, die or hang, and a parent process that is interrupted or killed."""

from __future__ import annotations

import copy
import gc
import os
import pickle
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from worker_scripts import ended, left_of, start, wait_until_gone

import oocdata as ooc
from oocdata.errors import TruncatedFileError, WorkerError
from oocdata.memory import account
from oocdata.reading.workers import process
from oocdata.reading.workers.pool import WorkerPool, pools
from oocdata.reading.workers.process import Process
from oocdata.runs import Run

SPEC = ooc.ArraySpec((), np.dtype("f8"))
LAST = 90.0
"""The first element of the batch that a worker doesn't survive: step 9 of 10 elements each."""


def numpy_way(loader: ooc.Loader) -> Iterator[Any]:
    return iter(loader)


def tensorflow_way(loader: ooc.Loader) -> Iterator[Any]:
    pytest.importorskip("tensorflow")
    return iter(loader.to_tf())


WAYS = pytest.mark.parametrize("way", [numpy_way, tensorflow_way], ids=["NumPy", "TensorFlow"])


def loader_of(act: Callable[[], object], workers: int = 1) -> ooc.Loader:
    """Return a loader whose workers call `act` at step 9."""

    def function(x: np.ndarray) -> np.ndarray:
        if x[0] == LAST:
            act()
        return x

    return ooc.open(np.arange(400.0)).map(function, spec=SPEC).batches(10, workers=workers)


def loop() -> None:
    while True:
        pass


ENDS: dict[str, tuple[Callable[[], object], str | None, int | None, str]] = {
    "killed": (lambda: os.kill(os.getpid(), signal.SIGKILL), "SIGKILL", None, "memory run out"),
    "crashed": (lambda: os.kill(os.getpid(), signal.SIGSEGV), "SIGSEGV", None, "FAULTHANDLER"),
    "exits with 0": (lambda: os._exit(0), None, 0, "exited with code 0"),
    "closes everything": (lambda: os.closerange(3, 1 << 20), "SIGKILL", None, "SIGKILL"),
}


@pytest.mark.parametrize(
    ("way", "end"),
    # The pool detects how the worker died, whatever the front-end.
    [*((numpy_way, end) for end in ENDS), (tensorflow_way, "killed")],
    ids=lambda value: value if isinstance(value, str) else value.__name__,
)
def test_a_worker_that_dies(
    way: Any, end: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    act, name, code, said = ENDS[end]
    note = tmp_path / "note"

    def noted() -> None:
        note.write_text(str(os.getpid()))
        act()

    looked = count_looks(monkeypatch, note)
    batches = []
    with pytest.raises(WorkerError, match=said) as caught:
        batches.extend(way(loader_of(noted, workers=2 if end == "killed" else 1)))
    assert_array_equal(np.concatenate(batches), np.arange(10.0 * len(batches)))
    # TensorFlow requests four steps at a time, in any order: earlier steps that it requests after
    # the death raise the same error.
    assert len(batches) == 9 if way is numpy_way else 6 <= len(batches) <= 9
    pid = note.read_text()
    # The error is promised within 5 s of the death.
    assert len(looked) * process._POLL_SECONDS < 5
    error = caught.value
    assert (error.pid, error.step, error.epoch) == (int(pid), 9, 0)
    assert (error.signal, error.exit_code) == (name, code)
    assert f"process {pid} " in str(error)
    assert "step 9 of epoch 0" in str(error)


def count_looks(monkeypatch: pytest.MonkeyPatch, note: Path) -> list[float]:
    """Return a list that grows with each vain poll of the connection once the note exists."""
    looked: list[float] = []
    poll = Connection.poll

    def counted(connection: Connection, timeout: float = 0.0) -> bool:
        ready = poll(connection, timeout)
        if timeout and not ready and note.exists():
            looked.append(timeout)
        return ready

    monkeypatch.setattr(Connection, "poll", counted)
    return looked


@pytest.mark.parametrize(
    ("way", "act"),
    [
        (tensorflow_way, loop),
        (numpy_way, lambda: os.kill(os.getpid(), signal.SIGSTOP)),
    ],
    ids=["loops beside TensorFlow", "is stopped beside NumPy"],
)
def test_a_worker_that_hangs(way: Any, act: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OOCDATA_WORKER_SECONDS", "1")
    receive = Process.receive

    def patient(worker: Process, run: Run, seconds: float | None) -> tuple[Any, ...]:
        """Wait for what does not hang as long as a busy machine needs."""
        return receive(worker, run, seconds if run.start == 9 else 600)

    monkeypatch.setattr(Process, "receive", patient)
    with pytest.raises(
        WorkerError, match=r"no answer for 1 s.*OOCDATA_WORKER_SEC.*step 9"
    ) as caught:
        list(way(loader_of(act)))
    assert caught.value.pid
    assert caught.value.step == 9
    wait_until_gone([caught.value.pid])


def test_an_idle_worker_is_killed() -> None:
    pool = WorkerPool(ooc.open(np.arange(100.0)).batches(10, workers=1), runs_in_use=2)
    pool.begin(Run(0, 0, 1))()
    pid = pool._workers[0].pid
    os.kill(pid, signal.SIGABRT)
    wait_until_gone([pid])
    with pytest.raises(WorkerError, match="step 4") as caught:
        pool.begin(Run(0, 4, 5))()
    assert (caught.value.pid, caught.value.signal) == (pid, "SIGABRT")
    assert pool.failure
    with pytest.raises(WorkerError, match="step 4"):  # runs begun later raise the same error
        pool.begin(Run(0, 5, 6))
    pool.close()


def test_all_tasks_of_a_dead_worker_name_the_step_it_died_in() -> None:
    """TensorFlow's threads may request step 9 before step 8, whose error is then raised first."""
    pool = WorkerPool(loader_of(lambda: os.kill(os.getpid(), signal.SIGKILL)), runs_in_use=2)
    calls = [pool.begin(Run(0, step, step + 1)) for step in (9, 8)]
    errors = []
    for call in calls:
        with pytest.raises(WorkerError, match="read step 9 of epoch 0") as caught:
            call()
        errors.append(caught.value)
    assert errors[0] is not errors[1]  # each has its own traceback
    pool.close()


def test_a_child_of_a_worker_does_not_hide_its_death() -> None:
    """The child inherits the worker's end of the connection, which stays open."""

    reading, writing = os.pipe()
    os.set_inheritable(reading, True)
    held = f"/proc/{os.getpid()}/fd/{reading}"

    def fork_and_die() -> None:
        if os.fork() == 0:
            with open(held, "rb") as until:  # until the test is over
                until.read()
            os._exit(0)
        os.kill(os.getpid(), signal.SIGKILL)

    try:
        with pytest.raises(WorkerError, match="SIGKILL"):
            list(loader_of(fork_and_die))
    finally:
        os.close(writing)
        os.close(reading)


def test_other_workers_finish_and_a_new_pass_begins(tmp_path: Path) -> None:
    """With TensorFlow; the same with NumPy is in test_workers.py."""
    pytest.importorskip("tensorflow")
    note = tmp_path / "died"

    def once() -> None:
        if not note.exists():
            note.touch()
            os.kill(os.getpid(), signal.SIGKILL)

    source = loader_of(once, workers=2).to_tf()
    with pytest.raises(WorkerError):
        list(source)
    assert_array_equal(np.concatenate(list(source)), np.arange(400.0))


@WAYS
@pytest.mark.usefixtures("own_account")
def test_nothing_is_left_after_a_death(way: Any) -> None:
    """The frame that catches the error holds the iterator; the error refers to the frame."""
    before = pids_now()

    def read_until_then() -> None:
        batches = way(loader_of(lambda: os.kill(os.getpid(), signal.SIGKILL)))
        with pytest.raises(WorkerError):
            list(batches)

    read_until_then()
    for _ in range(300):  # TensorFlow's threads finish their calls
        gc.collect()
        if account().nbytes == 0:
            break
        threading.Event().wait(0.2)
    assert account().nbytes == 0
    assert set(pids_now()) <= set(before)


class TestExceptions:
    @WAYS
    def test_the_original_is_raised_with_its_traceback(self, way: Any) -> None:
        def refuse() -> None:
            raise KeyError("no")

        iterator = way(loader_of(refuse))
        for _ in range(9):
            next(iterator)
        pids = pids_now()
        with pytest.raises(KeyError, match="no") as caught:
            next(iterator)
        # The line, not the file, which cloudpickle 3.1.3 omits from functions pickled by value.
        line = refuse.__code__.co_firstlineno + 1
        assert f"line {line}, in refuse" in caught.value.__notes__[-1]
        if way is tensorflow_way:
            assert_array_equal(next(iterator), np.arange(100.0, 110))
            assert pids == pids_now()

    @WAYS
    def test_a_file_error(self, way: Any, tmp_path: Path) -> None:
        path = tmp_path / "cut.npy"
        np.save(path, np.zeros((4000, 100)))
        loader = ooc.open(path).batches(10, workers=1)  # which has opened it by then
        iterator = way(loader)
        next(iterator)
        with open(path, "r+b") as file:
            file.truncate(128 + 2000 * 800)
        with pytest.raises(TruncatedFileError, match="cut short") as caught:
            list(iterator)
        assert caught.value.path == str(path)
        assert caught.value.rows

    def test_any_kind(self) -> None:
        kinds = [SystemExit, KeyboardInterrupt, GeneratorExit, MemoryError]

        def refuse(x: np.ndarray) -> np.ndarray:
            raise kinds[int(x[0])]("why")

        mapped = ooc.open(np.arange(4.0)).map(refuse, spec=SPEC)
        with closing(WorkerPool(mapped.batches(1, workers=1), runs_in_use=2)) as pool:
            for step, kind in enumerate(kinds):
                with pytest.raises(kind, match="why"):
                    pool.begin(Run(0, step, step + 1))()

    def test_with_its_own_init_or_not_picklable(self) -> None:
        class NeedsTwoError(Exception):
            def __init__(self, number: int, text: str) -> None:
                super().__init__(text)
                self.number = number

        def refuse() -> None:
            raise NeedsTwoError(3, "no")

        with pytest.raises(NeedsTwoError, match="no") as caught:
            list(loader_of(refuse))
        assert caught.value.number == 3

        def refuse_with_a_loop() -> None:
            error = NeedsTwoError(3, "no")
            error.loop = (n for n in range(3))  # type: ignore[attr-defined]
            raise error

        with pytest.raises(WorkerError, match=r"picklable.*NeedsTwoError: no") as other:
            list(loader_of(refuse_with_a_loop))
        assert other.value.step == 9
        assert "refuse_with_a_loop" in other.value.__notes__[0]

    def test_an_exception_that_cannot_be_loaded(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        module = tmp_path / "goes_away.py"
        module.write_text("def same(x): return x\n")
        monkeypatch.syspath_prepend(tmp_path)
        import goes_away  # type: ignore[import-not-found]

        loader = ooc.open(np.arange(40.0)).map(goes_away.same, spec=SPEC).batches(10, workers=1)
        module.unlink()
        with pytest.raises(ModuleNotFoundError, match="goes_away"):
            list(loader)

    def test_a_worker_error_can_be_pickled(self) -> None:
        error = WorkerError("why", pid=3, exit_code=1, signal=None, epoch=2, step=5)
        for twin in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
            assert (str(twin), vars(twin)) == ("why", vars(error))


def pids_now() -> list[int]:
    return [worker.pid for pool in pools for worker in pool._workers]


class TestEnds:
    @WAYS
    def test_a_dropped_iterator_or_dataset(self, way: Any) -> None:
        gc.collect()
        before = pids_now()
        loader = ooc.open(np.arange(40000.0)).batches(10, workers=1)
        source = loader if way is numpy_way else loader.to_tf()
        iterator = iter(source)
        next(iterator)
        pids = set(pids_now()) - set(before)
        assert len(pids) == 1
        del iterator, source
        if way is numpy_way:
            del loader
        gc.collect()
        wait_until_gone(pids)

    @pytest.mark.parametrize(
        ("code", "status", "said"),
        [
            ("it = iter(loader); next(it); say(*workers()); {wait}", -signal.SIGINT, "Keyboard"),
            ("it = iter(loader.to_tf()); next(it); say(*workers()); {wait}", -signal.SIGINT, "Key"),
            ("for batch in loop: say(batch)", -signal.SIGINT, "KeyboardInterrupt"),
        ],
        ids=["beside NumPy", "beside TensorFlow", "waiting for a batch"],
    )
    def test_interrupted(self, tmp_path: Path, code: str, status: int, said: str) -> None:
        """Ctrl-C in a terminal goes to every process of the script."""
        script = """
        loader = view.batches(4, workers=2)
        def looping(x):
            say("reading")
            while True:
                pass
        loop = view.map(looping, spec=spec).batches(4, workers=2)
        """
        wait = "signal.pause()"
        process = start(tmp_path, script + code.format(wait=wait))
        assert process.stdout is not None
        process.stdout.readline()
        pids = left_of(tmp_path)
        assert len(pids) == 2
        os.killpg(process.pid, signal.SIGINT)
        _, err = ended(process)
        assert process.returncode == status
        assert said in err
        assert err.count("KeyboardInterrupt") == 1  # the workers print nothing
        wait_until_gone(pids)

    @pytest.mark.parametrize("busy", [False, True], ids=["waiting", "in a loop"])
    def test_the_process_itself_is_killed(self, tmp_path: Path, busy: bool) -> None:
        script = """
        def looping(x):
            if x[0, 0] > 100:
                import re
                os.write(1, b"reading\\n")  # in one call: two workers write
                re.match("(a+)+$", "a" * 64 + "b")  # holds the GIL for ever
            return x
        it = iter(view.map(looping, spec=spec).batches(4, workers=2))
        next(it)
        say("begun")
        """ + ("list(it)" if busy else "signal.pause()")
        process = start(tmp_path, script)
        assert process.stdout is not None
        awaited = "reading\n" if busy else "begun\n"
        for line in process.stdout:
            if line == awaited:
                break
        else:
            pytest.fail(ended(process)[1])
        pids = left_of(tmp_path)
        assert len(pids) == 2
        process.kill()
        wait_until_gone(pids)
        ended(process)
        assert left_of(tmp_path) == []

    @pytest.mark.parametrize("way", ["loader", "loader.to_tf()"])
    def test_an_exception_in_the_model(self, tmp_path: Path, way: str) -> None:
        script = f"""
        loader = view.batches(4, workers=1)
        for step, batch in enumerate({way}):
            if step == 5:
                say(*workers())
                raise FloatingPointError("the model")
        """
        process = start(tmp_path, script)
        out, err = ended(process)
        assert process.returncode == 1
        assert "FloatingPointError: the model" in err
        wait_until_gone([int(number) for number in out.split()])
        assert left_of(tmp_path) == []
