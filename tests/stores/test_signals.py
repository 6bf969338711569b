"""Read from a server in real processes: Ctrl-C, exit, forks and workers."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from servers.ranges import RangeServer
from stored_layouts import KINDS, numbers, write_kinds

ROWS = numbers((400, 8, 8))
OPEN = """
import multiprocessing, os, signal, sys, threading
import numpy as np
import oocdata as ooc
from oocdata.errors import SourceError
from oocdata.stores.link import link
view = ooc.open(sys.argv[1], sys.argv[2] or None)
"""


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RangeServer]:
    folder = tmp_path_factory.mktemp("served")
    write_kinds(folder, ROWS, each=8, shard=80)
    with RangeServer(folder) as server:
        yield server


@pytest.fixture
def server(served: RangeServer) -> Iterator[RangeServer]:
    yield served
    served.release()
    served.wait_idle()


def where(server: RangeServer, kind: str) -> tuple[str, str]:
    name, key = KINDS[kind]
    return f"{server.url}/{name}", key or ""


class Child:
    """A Python process that opens an array at a URL, and runs some lines."""

    def __init__(self, server: RangeServer, kind: str, lines: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", OPEN + lines, *where(server, kind)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def wait_until(self, said: str) -> None:
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == f"{said}\n", self.process.communicate()

    def go(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def end(self, seconds: float = 8) -> tuple[int, str, str]:
        try:
            out, err = self.process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.communicate()
            raise
        return self.process.returncode, out, err


READS = {
    "take": "view.take(np.arange(0, 400, 9))",
    "epoch": "list(view.batches(16, shuffle=True))",
    "one batch": "view.batches(16, shuffle=True).batch(0)",
}

WAITING = """
def watch():
    seen = 0
    while seen < 20:  # not on its way there, where Python would not notice the signal
        threading.Event().wait(0.005)
        frame, names = sys._current_frames()[threading.main_thread().ident], []
        while frame is not None:
            names.append(frame.f_code.co_name)
            frame = frame.f_back
        seen = seen + 1 if "result" in names[:2] else 0
    print("waiting", flush=True)
threading.Thread(target=watch, daemon=True).start()
print('ready', flush=True)
sys.stdin.readline()
"""
"""Say when the main thread waits for an answer: Python's own pools tear when they are interrupted
as they start a thread."""


# Each kind waits in two of the three ways: a process takes longer to start than to wait.
@pytest.mark.parametrize(
    ("kind", "read"),
    [
        ("npy", "take"),
        ("npy", "epoch"),
        ("gzip", "one batch"),
        ("gzip", "epoch"),
        ("zarr", "take"),
        ("shards", "one batch"),
    ],
)
def test_ctrl_c_while_a_read_waits(server: RangeServer, kind: str, read: str) -> None:
    child = Child(server, kind, WAITING + READS[read])
    child.wait_until("ready")
    server.hold()
    child.go()
    child.wait_until("waiting")
    child.process.send_signal(signal.SIGINT)
    code, _, err = child.end()
    assert err.splitlines()[-1] == "KeyboardInterrupt", err
    assert code in (1, -signal.SIGINT)
    server.wait_idle()  # its connections are closed


SILENT = """
from oocdata.stores.interrupts import Interrupts
begin, tasks = Interrupts._begin, []
def begun(self, task):
    begin(self, task)
    tasks.append(task)
    if len(tasks) == 1:
        print("waiting", flush=True)
Interrupts._begin = begun
"""
"""Say when the link begins to look for Ctrl-C."""

IN_TENSORFLOW = """
import tensorflow
batches = view.batches(16, shuffle=True).to_tf()  # reads a row
print("ready", flush=True)
sys.stdin.readline()
for _ in batches:
    pass
"""


@pytest.mark.parametrize("kind", ["zarr", "gzip"])
def test_ctrl_c_while_tensorflow_waits_for_a_silent_store(server: RangeServer, kind: str) -> None:
    child = Child(server, kind, SILENT + IN_TENSORFLOW)
    child.wait_until("ready")
    server.hold()
    child.go()
    child.wait_until("waiting")
    child.process.send_signal(signal.SIGINT)
    code, _, err = child.end(100)  # it takes four minutes until the store is given up
    assert code in (1, -signal.SIGINT)
    assert "KeyboardInterrupt" in err  # TensorFlow calls it one of its own errors
    server.wait_idle()


NOTED = """
signal.signal(signal.SIGINT, lambda *_: print("noted", flush=True))
print("ready", flush=True)
sys.stdin.readline()
rows = view.take(np.arange(400))
print(len(rows), int(rows.sum()))
"""


def test_ctrl_c_that_the_program_handles_stops_no_read(server: RangeServer) -> None:
    child = Child(server, "zarr", SILENT + NOTED)
    child.wait_until("ready")
    server.hold()
    child.go()
    child.wait_until("waiting")
    child.process.send_signal(signal.SIGINT)
    child.wait_until("noted")
    server.release()
    code, out, err = child.end(60)
    assert (code, err) == (0, "")
    assert out.splitlines()[-1] == f"400 {int(ROWS.sum())}"


FORK_IN_SILENCE = """
import faulthandler, warnings
warnings.simplefilter("ignore", DeprecationWarning)
reading = threading.Thread(target=view.take, args=([300],), daemon=True)
print("ready", flush=True)
sys.stdin.readline()
reading.start()
sys.stdin.readline()
pid = os.fork()
if not pid:
    os._exit(faulthandler.unregister(signal.SIGINT))
status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
print(status, faulthandler.unregister(signal.SIGINT), flush=True)
os._exit(0)
"""


def test_a_fork_does_not_tell_its_parent_of_ctrl_c(server: RangeServer) -> None:
    child = Child(server, "zarr", SILENT + FORK_IN_SILENCE)
    child.wait_until("ready")
    server.hold()
    child.go()
    child.wait_until("waiting")
    child.go()
    code, out, err = child.end(60)
    assert (code, err) == (0, "")
    assert out.splitlines()[-1] == "0 True"


END = """
def read():
    try:
        {read}
    except BaseException as error:
        print(error)
thread = threading.Thread(target=read)
print('ready', flush=True)
sys.stdin.readline()
thread.start()
sys.stdin.readline()
"""


@pytest.mark.parametrize(
    ("kind", "read"),
    [
        ("npy", "epoch"),
        ("gzip", "take"),
        ("gzip", "epoch"),
        ("zarr", "epoch"),
        ("shards", "take"),
        ("shards", "epoch"),
    ],
)
def test_the_end_of_the_process_while_a_read_waits(
    server: RangeServer, kind: str, read: str
) -> None:
    child = Child(server, kind, END.format(read=READS[read]))
    child.wait_until("ready")
    server.hold()
    child.go()
    server.wait_for(1)
    child.go()
    code, _, err = child.end()
    assert (code, err) == (0, "")


PARTING = """
from contextlib import suppress
def read():
    with suppress(SourceError):
        list(view.batches(8, shuffle="global").epoch(0))
print("ready", flush=True)
sys.stdin.readline()
threading.Thread(target=read).start()
sys.stdin.readline()
under_way = len(link()._client_calls)
link().end()  # as the interpreter calls it
print(under_way >= 5, len(link()._client_calls), flush=True)
"""


def test_the_client_has_nothing_in_flight_when_the_interpreter_is_gone(server: RangeServer) -> None:
    """The client's threads would call into it, and end the process by a signal."""
    child = Child(server, "zarr", PARTING)  # an object a chunk
    child.wait_until("ready")
    server.hold()
    child.go()
    server.wait_for(5)
    child.go()
    assert child.end() == (0, "True 0\n", "")


def test_an_epoch_that_was_begun_does_not_keep_the_process(server: RangeServer) -> None:
    """Threads read steps ahead when the main thread ends."""
    child = Child(
        server,
        "npy",
        "batches = iter(view.batches(16, shuffle=True))\nnext(batches)\n"
        "print('ready', flush=True)\nsys.stdin.readline()\nnext(batches)\n",
    )
    child.wait_until("ready")
    child.go()
    code, _, err = child.end()
    assert (code, err) == (0, "")


FORK = """
import warnings
warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12 has one of forks
view.take([1])
pid = os.fork()
if not pid:
    try:
        view.take(np.arange(200, 210))
    except SourceError as error:
        print(error, flush=True)
        os._exit(7)
    os._exit(1)
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
print(len(view.take(np.arange(200, 210))))
"""


@pytest.mark.parametrize("kind", ["npy", "zarr"])
def test_a_fork_after_a_read(server: RangeServer, kind: str) -> None:
    code, out, err = Child(server, kind, FORK).end()
    assert (code, err) == (0, "")
    said, status, count = out.splitlines()
    assert "spawn" in said
    assert (status, count) == ("7", "10")


FORK_MEANWHILE = """
import warnings
warnings.simplefilter("ignore", DeprecationWarning)
from oocdata.engines.runs import UnfinishedError
from oocdata.stores.files import StoredFile
file = StoredFile.at(sys.argv[1])
print("ready", flush=True)
sys.stdin.readline()
with file.prefetch(file.fetches(np.array([99_000]), 999)), file.lock:
    pid = os.fork()
    if not pid:
        signal.alarm(5)
        try:
            file.read(99_100, 9)
        except UnfinishedError as error:
            print(error.cause, flush=True)
            os._exit(7)
        os._exit(1)
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
"""


def test_a_fork_while_something_is_asked_for(server: RangeServer) -> None:
    child = Child(server, "npy", FORK_MEANWHILE)
    child.wait_until("ready")
    server.hold()
    child.go()
    code, out, err = child.end()
    assert (code, err) == (0, "")
    said, status = out.splitlines()
    assert "spawn" in said
    assert status == "7"


WORKERS = """
def read(rows):
    return view.take(rows)
def sums(view, rows, out):
    out.put(float(view.take(rows).sum()))
if __name__ == "__main__":
    context = multiprocessing.get_context(sys.argv[3])
    out = context.Queue()
    each = [context.Process(target=sums, args=(view, np.arange(n, n + 9), out)) for n in (0, 90)]
    [one.start() for one in each]
    print(sum(out.get() for _ in each))
    [one.join() for one in each]
"""


@pytest.mark.parametrize("how", ["spawn", "forkserver"])
def test_processes_that_are_not_forked(server: RangeServer, how: str, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(OPEN + WORKERS)
    command = [sys.executable, str(script), *where(server, "gzip"), how]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.stderr == ""
    expected: Any = ROWS[:9].sum() + ROWS[90:99].sum()
    assert float(done.stdout) == expected
    assert os.path.exists(script)
