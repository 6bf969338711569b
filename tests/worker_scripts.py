"""Run scripts in fresh processes, and find what they leave behind."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import fork_server

Process = subprocess.Popen[str] | fork_server.Forked

PREAMBLE = """
import os, signal, sys
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import numpy as np, oocdata as ooc
from oocdata.reading.workers.pool import pools
view = ooc.open(np.arange(4000.0).reshape(1000, 4))
spec = ooc.ArraySpec((4,), np.dtype("f8"))
def workers():
    return [worker.pid for pool in pools for worker in pool._workers]
def say(*what):
    # In one piece, whoever else writes, and however Python was told to buffer.
    os.write(1, (" ".join(map(str, what)) + "\\n").encode())
"""

SLOW = """
def slow(x):
    np.random.default_rng(0).random(200_000)
    return x
mapped = view.map(slow, spec=spec)
def end(how):
    if how == "raise":
        raise ValueError("the model")
    if how == "exit":
        sys.exit(1)
    if how == "terminate":
        os.kill(os.getpid(), signal.SIGTERM)
"""

ENDS = {"end": 0, "raise": 1, "exit": 1, "terminate": -signal.SIGTERM}

SECONDS = 120
"""Until a hang is called one: a failure, not a measure of speed."""


def start(tmp_path: Path, code: str, *, fork: bool | None = None, **options: Any) -> Process:
    """Start a script as the leader of a new session, as a terminal does.

    By default, a script that needs TensorFlow is forked from a process that has imported it.
    """
    script = tmp_path / "script.py"
    script.write_text(PREAMBLE + textwrap.dedent(code))
    if "to_tf" in code if fork is None else fork:
        return fork_server.start(script.read_text(), path=str(script), finalize=True, **options)
    return subprocess.Popen(
        [sys.executable, str(script)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        **options,
    )


def wait_for_line(process: Process, wanted: str) -> None:
    """Read a script's output until it has written a line; fail if it ends before."""
    assert process.stdout is not None
    assert process.stderr is not None
    for line in process.stdout:
        if line == f"{wanted}\n":
            return
    raise AssertionError(f"ended before it wrote {wanted!r}: {process.stderr.read()}")


def ended(process: Process) -> tuple[str, str]:
    """Wait for a script to end; return its output."""
    try:
        return process.communicate(timeout=SECONDS)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        raise


def left_of(tmp_path: Path) -> list[int]:
    """Return the worker processes that a script in a folder has started."""
    found = []
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            line = Path(f"/proc/{name}/cmdline").read_bytes()
        except OSError:
            continue
        if b"oocdata.reading.workers" in line and os.fsencode(tmp_path) in line:
            found.append(int(name))
    return found


def wait_until_gone(numbers: Iterable[int]) -> None:
    """Wait until processes, of any parent, have ended."""
    for number in numbers:
        try:
            descriptor = os.pidfd_open(number)
        except ProcessLookupError:
            continue
        try:
            assert select.select([descriptor], [], [], SECONDS)[0], f"process {number} still lives"
        finally:
            os.close(descriptor)


def leave(folder: Path, code: str, how: str, fork: bool | None = None) -> str | None:
    """Run a script to its end; return a description of what is wrong with it, or None."""
    folder.mkdir()
    process = start(folder, SLOW + code + f"\nend({how!r})\n", fork=fork)
    try:
        _, err = ended(process)
    except subprocess.TimeoutExpired:
        return f"{code!r}, {how}: hangs"
    if process.returncode != ENDS[how] or "Fatal" in err or "Error in" in err:
        return f"{code!r}, {how}: returned {process.returncode}: {err}"
    return None
