"""Reads that are interrupted, dropped or forked: what comes after them is right."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path
from types import FrameType
from typing import Any

import h5py
import interrupts
import numpy as np
import pytest
import zarr
from forked import in_a_fork
from numpy.testing import assert_array_equal

import oocdata as ooc
from oocdata.engines import files
from oocdata.errors import ArgumentError
from oocdata.frontends.shutdown import Calls


def write_npy(path: Path) -> Path:
    np.save(path / "a.npy", interrupts.ROWS)
    return path / "a.npy"


def write_hdf5(path: Path) -> Path:
    with h5py.File(path / "a.h5", "w") as file:
        file.create_dataset("u", data=interrupts.ROWS, chunks=(16, 512), compression="gzip")
    return path / "a.h5"


def write_zarr(path: Path) -> Path:
    zarr.create_array(str(path / "a.zarr"), data=interrupts.ROWS, chunks=(16, 512))
    return path / "a.zarr"


@pytest.mark.parametrize("write", [write_npy, write_hdf5, write_zarr])
def test_ctrl_c_leaves_nothing_half_changed(write: Any, tmp_path: Path) -> None:
    """Of real signals; before reads were out of their reach, every tenth to hundredth tore one."""
    command = [sys.executable, interrupts.__file__, str(write(tmp_path)), "60"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    wrong, count = map(int, done.stdout.split())
    assert (wrong, count >= 54) == (0, True)


START = """
import os, signal, sys, threading
import oocdata as ooc
start = threading.Thread.start
def interrupted(thread):
    start(thread)
    threading.Thread.start = start
    os.kill(os.getpid(), signal.SIGINT)
view = ooc.open(sys.argv[1])
threading.Thread.start = interrupted
try:
    READ
except KeyboardInterrupt:
    print("interrupted")
"""
READS = ["view.take([0])", "next(iter(view.batches(4)))"]


@pytest.mark.parametrize("read", READS)
def test_ctrl_c_while_threads_start_leaves_no_thread(read: str, tmp_path: Path) -> None:
    """Such a thread was never told to end, so neither did the process."""
    command = [sys.executable, "-c", START.replace("READ", read), str(write_hdf5(tmp_path))]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (done.stdout, done.stderr, done.returncode) == ("interrupted\n", "", 0)


@pytest.mark.parametrize("read", READS)
def test_ctrl_c_finds_no_lock_of_python_in_a_read(read: str, tmp_path: Path) -> None:
    """Such a lock may stay locked, because the ``__enter__`` of a condition can be interrupted."""
    view = ooc.open(write_hdf5(tmp_path))
    ours = threading.__file__, sys.modules["concurrent.futures"].__path__[0]
    found = set[str]()

    def note(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        takes_lock = code.co_name in ("__enter__", "acquire", "start", "submit", "wait")
        if event == "call" and code.co_filename.startswith(ours) and takes_lock:
            found.add(f"{code.co_filename}: {code.co_qualname}")

    sys.setprofile(note)
    try:
        exec(read, {"view": view})
    finally:
        sys.setprofile(None)
    assert not found


OUTLIVE = """
import atexit, sys, threading
def read():
    print(sum(len(batch) for batch in loader), sum(len(batch) for batch in loader.epoch(3)))
atexit.register(read)  # called last
import oocdata as ooc
loader = ooc.open(sys.argv[1]).batches(16, shuffle=True)
threading.Thread(target=read).start()
"""


@pytest.mark.parametrize("write", [write_npy, write_hdf5])
def test_reading_goes_on_after_the_main_thread(write: Any, tmp_path: Path) -> None:
    """By threads of the user, which the interpreter waits for, and by functions of `atexit`."""
    command = [sys.executable, "-c", OUTLIVE, write(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (done.stdout, done.stderr, done.returncode) == ("3000 3000\n" * 2, "", 0)


EXIT = """
import _thread, sys, threading, time
from oocdata import threads
name = "_start_joinable_thread" if sys.version_info >= (3, 13) else "_start_new_thread"
begun, usual = threading.Event(), getattr(threading, name)
def late(*arguments, **options):
    begun.set()
    while not threads._exiting:
        time.sleep(0.001)
    return usual(*arguments, **options)
setattr(threading, name, late)
_thread.start_new_thread(threads.Threads(2, "test").put, (print,))
begun.wait()
"""


def test_threads_may_start_while_the_interpreter_exits() -> None:
    command = [sys.executable, "-c", EXIT]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (done.stderr, done.returncode) == ("", 0)


def test_a_descriptor_is_held_while_it_is_read_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More files than are kept open: what is pushed out is closed, and its number used again."""
    for number in range(200):
        np.save(tmp_path / f"{number}.npy", np.full((2500, 8), number))
    first = ooc.open(tmp_path / "0.npy")
    others = ooc.open([tmp_path / f"{number}.npy" for number in range(1, 200)])
    read, once = files.read_runs, []

    def slow(*arguments: Any) -> None:
        """Another thread reads of the others meanwhile."""
        if not once:
            once.append(True)
            rows = np.arange(0, len(others), 2500)
            thread = threading.Thread(target=lambda: others.take(rows))
            thread.start()
            thread.join()
        read(*arguments)

    monkeypatch.setattr(files, "read_runs", slow)
    assert_array_equal(first.take([5, 900, 2400]), np.zeros((3, 8)))
    assert once


SCRIPT = """
import sys
import oocdata as ooc
ooc.set_memory(2 << 20)
loader = ooc.open(sys.argv[1]).batches(16, shuffle=True)
def first_batch():
    batches = iter(loader)
    try:
        next(batches)
        raise RuntimeError("enough")
    except RuntimeError as caught:
        error = caught  # frame, traceback and iterator: a cycle that the collector drops
for _ in range(int(sys.argv[2])):
    first_batch()
print("ended")
"""


@pytest.mark.parametrize(("write", "times"), [(write_npy, 100), (write_hdf5, 25)])
def test_the_collector_may_drop_an_iterator_anywhere(
    write: Any, times: int, tmp_path: Path
) -> None:
    """In a thread that it reads with, for one: a hang is what this is about."""
    command = [sys.executable, "-c", SCRIPT, write(tmp_path), str(times)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (done.stdout, done.stderr, done.returncode) == ("ended\n", "", 0)


VISIT = """
import sys, faulthandler
import h5py, numpy as np, oocdata as ooc
faulthandler.dump_traceback_later(110, exit=True)
path = sys.argv[1]
with h5py.File(path) as file:
    file.visititems(lambda key, _: print(ooc.open(path, key).take(np.arange(0, 1000, 50)).shape))
"""


def test_reading_in_a_call_of_h5py_does_not_wait_for_itself(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("gzip", data=interrupts.ROWS, chunks=(16, 512), compression="gzip")
        file.create_dataset("scale", data=interrupts.ROWS, chunks=(16, 512), scaleoffset=0)
    command = [sys.executable, "-c", VISIT, str(tmp_path / "a.h5")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (done.stdout, done.stderr) == ("(20, 512)\n" * 2, "")


def test_reads_in_a_fork_have_a_thread_of_their_own(tmp_path: Path) -> None:
    path = write_hdf5(tmp_path)
    view = ooc.open(path)
    rows = np.arange(0, 3000, 40)
    view.take(rows)
    assert in_a_fork(lambda: view.take(rows).sum()) == str(interrupts.ROWS[rows].sum())


def test_a_gate_does_not_wait_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    gate = Calls()
    monkeypatch.setattr(gate, "LONGEST_SECONDS", 0.01)
    with gate:
        gate.close()


@pytest.mark.parametrize("kind", [np.uint8, np.int16, np.int32])
def test_steps_and_epochs_of_numpy(kind: Any) -> None:
    loader = ooc.open(np.arange(20_000)).batches(200, shuffle=True)
    assert_array_equal(loader.batch(kind(99), kind(3)), loader.batch(99, 3))
    assert_array_equal(next(loader.epoch(kind(90), kind(99))), loader.batch(99, 90))


class Shifted(ooc.Order):
    """An order that is none."""

    def __init__(self, shift: int, length: int = 0, dtype: str = "i8") -> None:
        self.shift, self.length, self.dtype = shift, length, dtype

    def epoch_order(self, count: int, seed: int, epoch: int) -> Any:
        return self.at

    def at(self, places: Any) -> Any:
        return np.arange(len(places) + self.length).astype(self.dtype) + self.shift


@pytest.mark.parametrize("order", [Shifted(1), Shifted(-1), Shifted(0, 1), Shifted(0, 0, "f8")])
def test_orders_are_taken_by_their_word(order: Any) -> None:
    loader = ooc.open(np.arange(10.0))[:8].batches(4, shuffle=order)
    with pytest.raises(ArgumentError, match=r"a whole number in \[0, 8\) for each of 8 places"):
        list(loader)
