"""Scripts as forks of one process that has imported TensorFlow and this package: seconds less each.

What is forked has their modules, but none of its threads: it starts those with the first
operation, as in any script. It ends as a script ends, too: threads are waited for, and what was
registered is called. That Python then takes all modules apart is left out unless it is asked for:
0.2 seconds, mostly for TensorFlow's. Tests of the import itself start processes of their own.

`python fork_server.py SCRIPT …` is `python SCRIPT …` as such a fork, for what starts Python itself:
it has the standard streams of the process that asks for it, but outlives one that is killed.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import types
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any, NoReturn


class Forked:
    """A script in a fork, with the part of `subprocess.Popen` that tests use."""

    def __init__(self, pid: int, status: int, out: int | None, err: int | None) -> None:
        self.pid, self._status = pid, status
        self.returncode: int | None = None
        self.stdout = None if out is None else os.fdopen(out)
        self.stderr = None if err is None else os.fdopen(err)

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            if not select.select([self._status], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(f"fork {self.pid}", timeout or 0)
            self.returncode = os.waitstatus_to_exitcode(int(os.read(self._status, 100)))
            os.close(self._status)
        return self.returncode

    def poll(self) -> int | None:
        try:
            return self.wait(0)
        except subprocess.TimeoutExpired:
            return None

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """Read all that it writes, and wait for its end; kill it after the time."""
        with ThreadPoolExecutor(2) as threads:
            said = [file and threads.submit(file.read) for file in (self.stdout, self.stderr)]
            try:
                self.wait(timeout)
            except subprocess.TimeoutExpired:
                os.killpg(self.pid, signal.SIGKILL)
                raise
            out, err = (one.result() if one else "" for one in said)
        self.close()
        return out, err

    def __enter__(self) -> Forked:
        return self

    def __exit__(self, *error: object) -> None:
        self.kill()
        self.wait()
        self.close()

    def close(self) -> None:
        for file in (self.stdout, self.stderr):
            if file is not None:
                file.close()


def start(
    code: str,
    *arguments: object,
    path: str | None = None,
    env: Mapping[str, str] | None = None,
    cwd: str | None = None,
    hear: str = "stdout stderr",
    finalize: bool = False,
) -> Forked:
    """Run a script as the leader of a session of its own.

    Parameters
    ----------
    code : str
    arguments : object
        Its ``sys.argv[1:]``, as text.
    path : str, optional
        The file that the code is of; None as by ``python -c``.
    env : mapping, optional
        Its whole environment. TensorFlow was imported under that of this process.
    cwd : str, optional
    hear : str
        What can be read of it; nobody reads the rest.
    finalize : bool
        Whether it ends with all of Python's finalization.
    """
    out, out_of_it = _heard("stdout" in hear)
    err, err_of_it = _heard("stderr" in hear)
    nothing = os.open(os.devnull, os.O_RDONLY)
    streams = [nothing, out_of_it, err_of_it]
    pid, status = _fork(streams, code, arguments, path, env, cwd, finalize)
    for number in streams:
        os.close(number)
    return Forked(pid, status, out, err)


def _fork(
    streams: list[int],
    code: str,
    arguments: Iterable[object],
    path: str | None,
    env: Mapping[str, str] | None = None,
    cwd: str | None = None,
    finalize: bool = False,
) -> tuple[int, int]:
    """Return the process, which has these standard streams, and what its status is read from."""
    status, status_of_it = os.pipe()
    asked = {
        "code": code,
        "arguments": list(map(str, arguments)),
        "path": path,
        "env": dict(os.environ if env is None else env),
        "cwd": os.path.abspath(cwd or os.curdir),
        "finalize": finalize,
    }
    with _starting:
        address = _server()
    with socket.socket(socket.AF_UNIX) as call:
        call.connect(address)
        socket.send_fds(call, [b"."], [status_of_it, *streams])
        call.sendall(json.dumps(asked).encode())
        call.shutdown(socket.SHUT_WR)
        os.close(status_of_it)
        return int(call.recv(100)), status


def run(code: str, *arguments: object, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run a script to its end; see `start`."""
    script = start(code, *arguments, **options)
    out, err = script.communicate(timeout=120)
    return subprocess.CompletedProcess([code, *arguments], script.wait(), out, err)


def _heard(heard: bool) -> tuple[int | None, int]:
    return os.pipe() if heard else (None, os.open(os.devnull, os.O_WRONLY))


_starting = threading.Lock()


LEAN = Path(__file__).parent / "lean"

_ADDRESS = "OOCDATA_TESTS_FORK_SERVER"


def share() -> None:
    """Have the processes that this one starts use one process that forks, not one each."""
    os.environ.pop(_ADDRESS, None)
    name, address = shared()
    os.environ[name] = address


def shared() -> tuple[str, str]:
    """Return the name and value of the environment variable of those that use the same process."""
    return _ADDRESS, _server().hex()


@cache
def _server() -> bytes:
    """Return the address of the process that forks; it ends with the one that has started it."""
    if _ADDRESS in os.environ:
        return bytes.fromhex(os.environ[_ADDRESS])
    listening = socket.socket(socket.AF_UNIX)
    listening.bind("")  # Linux names it
    listening.listen(100)
    ends, until = os.pipe()
    os.set_inheritable(ends, True)
    process = subprocess.Popen(
        [sys.executable, __file__, str(listening.fileno()), str(ends)],
        pass_fds=[listening.fileno(), ends],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(filter(None, [str(LEAN), os.environ.get("PYTHONPATH")])),
            "TF_CPP_MIN_LOG_LEVEL": "3",
            "CUDA_VISIBLE_DEVICES": "-1",
        },
        start_new_session=True,
    )
    address: bytes = listening.getsockname()
    listening.close()
    os.close(ends)

    @atexit.register
    def end() -> None:
        os.close(until)
        process.terminate()  # whatever holds a copy of that descriptor
        process.wait()

    return address


def _serve(listening: socket.socket, ends: int) -> dict[str, Any]:
    """Fork for each call; return in the fork, with what was asked for."""
    while True:
        ready, _, _ = select.select([listening, ends], [], [])
        if ends in ready:
            os._exit(0)
        call, _ = listening.accept()
        _, numbers, _, _ = socket.recv_fds(call, 1, 4)
        with call.makefile("rb") as rest:
            said = rest.read()
        # One that waits for it, and one that is it.
        if os.fork() == 0:
            pid = os.fork()
            if pid == 0:
                listening.close()
                os.close(ends)
                call.close()
                return json.loads(said) | {"numbers": numbers}
            _report(call, pid, numbers)
        for number in numbers:
            os.close(number)
        call.close()
        while True:
            try:
                if os.waitpid(-1, os.WNOHANG)[0] == 0:
                    break
            except ChildProcessError:
                break


def _report(call: socket.socket, pid: int, numbers: list[int]) -> NoReturn:
    status, *streams = numbers
    for number in streams:
        os.close(number)
    call.sendall(str(pid).encode())
    call.close()
    os.write(status, str(os.waitpid(pid, 0)[1]).encode())
    os._exit(0)


def _become(asked: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Make this process what `python` would be; return what to run, and as which module."""
    status, *streams = asked["numbers"]
    os.close(status)
    for standard, number in enumerate(streams):
        os.dup2(number, standard)
        os.close(number)
    os.setsid()
    os.chdir(asked["cwd"])
    os.environ.clear()
    os.environ.update(asked["env"])
    tempfile.tempdir = None  # that of TMPDIR as it is now
    path = asked["path"]
    sys.argv = [path or "-c", *asked["arguments"]]
    sys.path[0] = os.path.dirname(path) if path else ""
    sys.path[1:1] = [one for one in asked["env"].get("PYTHONPATH", "").split(os.pathsep) if one]
    main = types.ModuleType("__main__")
    if path:
        main.__file__ = path
    sys.modules["__main__"] = main
    return compile(asked["code"], path or "<string>", "exec"), vars(main)


_status: list[int] = []


def _end_at_once() -> None:
    """End with a known status, after all else that was registered."""
    if _status:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(_status[0])


if __name__ == "__main__":
    if not sys.argv[1].isdecimal():
        name, *others = sys.argv[1:]
        _, status = _fork([0, 1, 2], Path(name).read_text(), others, name)
        sys.exit(os.waitstatus_to_exitcode(int(os.read(status, 100))))
    atexit.register(_end_at_once)
    listening, ends = socket.socket(fileno=int(sys.argv[1])), int(sys.argv[2])
    if ends in select.select([listening, ends], [], [])[0]:  # nobody has called
        os._exit(0)
    import keras  # noqa: F401
    import tensorflow  # noqa: F401
    import zarr  # noqa: F401

    import oocdata.cli
    import oocdata.tools.convert  # noqa: F401

    gc.freeze()  # or the collections of each fork's end would copy all this memory: 3 s
    asked = _serve(listening, ends)
    script = _become(asked)
    end: object = None
    try:
        exec(*script)
        end = 0
    except SystemExit as left:
        end = left.code or 0
        raise
    finally:
        if not asked["finalize"] and isinstance(end, int):
            _status.append(end & 0xFF)
