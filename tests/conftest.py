"""What every test runs under: deterministic properties, and no thread or descriptor left behind."""

from __future__ import annotations

import faulthandler
import gc
import inspect
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import fork_server
import lean.sitecustomize  # noqa: F401  # here as in what tests start
import pytest
from hypothesis import settings

from oocdata import memory as process_memory
from oocdata.engines import files
from oocdata.engines.cache import ArrayCache
from oocdata.engines.cache import cache as chunk_cache

# Or each process compiles this package, and these tests with pytest's assertions, anew: 20 seconds.
sys.dont_write_bytecode = False

# The same examples in every run; others, and many more: `--hypothesis-profile thorough`.
settings.register_profile(
    "oocdata", deadline=None, derandomize=True, database=None, max_examples=20
)
settings.register_profile("thorough", deadline=None, database=None, max_examples=1000)
settings.load_profile("oocdata")


# A shell without a terminal has what it starts in the background ignore Ctrl-C, and whatever that
# starts in turn: then tests that send it would wait for ever.
signal.signal(signal.SIGINT, signal.default_int_handler)

_frozen_for: set[ModuleType] = set()

# What other tests left to the garbage collector stays out of its reach in a fork: TensorFlow's
# objects end a process that has its memory but not its threads.
_collected: list[bool] = []


def _before_fork() -> None:
    _collected.append(gc.isenabled())
    gc.disable()


def _after_fork() -> None:
    if _collected.pop():
        gc.enable()


def _in_fork() -> None:
    gc.freeze()
    _after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_in_fork)


# Of the process, before a test's output is captured.
STDERR = pytest.StashKey[int]()


@pytest.hookimpl(optionalhook=True)  # where pytest-xdist is installed
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Return how many processes run tests: more than cores, for many tests wait for processes.

    7,600 tests took 5:22 on two cores; with two processes 7:11, while others ran there too.
    """
    return max(1, (os.cpu_count() or 1) * 3 // 2)


def pytest_configure(config: pytest.Config) -> None:
    config.stash[STDERR] = os.dup(2)
    if getattr(config.option, "numprocesses", None):  # the one that starts those that run tests
        fork_server.share()


@pytest.fixture(scope="session", autouse=True)
def lean_children() -> Iterator[None]:
    """Have what tests start import TensorFlow in half the time; see tests/lean/sitecustomize.py.

    And keep what they compile: a worker process takes longer to compile this package than to read.
    """
    usual = os.environ.get("PYTHONPATH")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [str(fork_server.LEAN), usual])))
        patch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
        yield


@pytest.fixture
def no_waiting_for_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have nothing wait until it is on the disk: what a test writes need not outlive the machine.

    3,400 waits in `tests/writers` took 12 seconds. That a file is whole before it has its name is
    tested with calls that are noted, and with processes that are killed. Not for tests of pages
    that are dropped: those that are yet to be written can't be.
    """

    def fsync(number: int) -> None:
        os.fstat(number)  # an error where nothing is open

    monkeypatch.setattr(os, "fsync", fsync)


@pytest.fixture(autouse=True)
def few_objects_to_look_at(request: pytest.FixtureRequest) -> None:
    """Keep Python's collector to what tests make: TensorFlow alone is a million objects.

    A full collection takes half a second with them, and some tests ask for dozens. Anew in every
    module, for what was imported since.
    """
    if request.module not in _frozen_for:
        _frozen_for.add(request.module)
        gc.collect()
        gc.freeze()


# The limits are those of pytest-timeout, but its thread can't run under a hang that holds the GIL,
# and writes where a process of pytest-xdist is not heard.
def pytest_timeout_set_timer(item: pytest.Item, settings: Any) -> bool:
    """End the process of a test that takes too long, with the stacks of all its threads."""
    slow = item.get_closest_marker("long") or item.get_closest_marker("thorough")
    seconds = settings.timeout * (4 if slow else 1)
    faulthandler.dump_traceback_later(seconds, exit=True, file=item.config.stash[STDERR])
    return True


def pytest_timeout_cancel_timer() -> bool:
    faulthandler.cancel_dump_traceback_later()
    return True


def open_files(folder: Path) -> list[str]:
    """Return the files under a folder that this process has open; empty where /proc is not."""
    if not os.path.isdir("/proc/self/fd"):
        return []
    found = []
    for number in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{number}")
        except OSError:  # the descriptor of this very listing
            continue
        if target.startswith(f"{folder}/"):
            found.append(target)
    return found


def our_threads() -> set[threading.Thread]:
    """Return the threads that oocdata started, but for those that a process keeps."""
    kept = ("oocdata-decode", "oocdata-link")
    return {
        thread
        for thread in threading.enumerate()
        if thread.name.startswith("oocdata") and not thread.name.startswith(kept)
    }


def close_files() -> None:
    """Close the files that oocdata keeps open, and forget what it has decoded."""
    for reference in list(files._opened.values()):
        file = reference()
        if file is not None:
            file._descriptor = None
    files._opened.clear()
    chunk_cache.forget()


@pytest.fixture
def loads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list to which each search for missing chunks adds their number."""
    found: list[int] = []
    load = ArrayCache.load

    def counting(self: ArrayCache, numbers: Any, *arguments: Any) -> Any:
        found.append(len(numbers))
        return load(self, numbers, *arguments)

    monkeypatch.setattr(ArrayCache, "load", counting)
    return found


@cache
def uses_tensorflow(module: ModuleType) -> bool:
    """Return whether tests of a module read through TensorFlow's threads."""
    return "to_tf" in inspect.getsource(module)


@pytest.fixture(autouse=True)
def collected_in_this_thread(request: pytest.FixtureRequest) -> Iterator[None]:
    """Keep Python's collector out of TensorFlow's threads.

    Where it drops an iterator, in a cycle with an exception that a test has caught, in a thread
    that reads for that iterator, TensorFlow makes the thread wait for itself; and what it holds
    stays for all tests that follow.
    """
    if not uses_tensorflow(request.module):
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.collect(1)
        gc.enable()


@pytest.fixture(autouse=True)
def nothing_left_behind(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail a test after which a thread of ours runs, or a file of its own folder stays open.

    Files of sources that live may stay open, within a bound; so those are closed first.
    """
    # Set up before this fixture is, so that its folder is still there when this one ends.
    folder = request.getfixturevalue("tmp_path") if "tmp_path" in request.fixturenames else None
    before = our_threads()
    yield
    close_files()
    # What is in a reference cycle is not a leak, nor what TensorFlow's threads were still reading
    # ahead when the test ended: those end by themselves, soon after their iterator goes.
    for _ in range(1000):
        left = our_threads() - before
        if not left:
            break
        gc.collect()
        for thread in left:
            with suppress(RuntimeError):  # one that is about to start can't be waited for
                thread.join(0.05)
    assert not [thread.name for thread in our_threads() - before]
    for _ in range(1000):
        if folder is None or not open_files(folder):
            return
        gc.collect()
        close_files()
        gc.collect()
        threading.Event().wait(0.05)
    assert not open_files(folder)


@pytest.fixture
def own_account(monkeypatch: pytest.MonkeyPatch) -> None:
    """Count what this test has in flight alone: iterators of others may not be collected yet."""
    monkeypatch.setattr(process_memory, "_account", process_memory.Account())
