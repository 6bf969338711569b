"""One worker process, seen from the process that started it."""

from __future__ import annotations

import pickle
import signal
import subprocess
import sys
import time
from collections import deque
from contextlib import ExitStack, suppress
from multiprocessing.connection import Pipe
from typing import TYPE_CHECKING, Any

from oocdata.errors import WorkerError
from oocdata.reading.workers.child import made_again

if TYPE_CHECKING:
    from oocdata.runs import Run

__all__ = ["Process"]

_LOOK_SECONDS = 0.5
"""How often to look whether a process still lives whose end of the connection stays open."""

_START = (
    "import sys; sys.path[:] = sys.argv[5:]; from oocdata.reading.workers.child import main; main()"
)


class Process:
    """A process that reads runs into slots of shared memory, one after the other.

    It gets the descriptors of the slots and of the loader that was sent, and how many seconds it
    may be busy with one run. The pool keeps in `queue` the slots of what was sent and is not yet
    answered.
    """

    def __init__(self, slots: int, loader: int, seconds: float) -> None:
        self.queue: deque[int] = deque()
        self._seconds = seconds
        self._hung = False
        with ExitStack() as handed:  # open in the process from then on, and no longer here
            self._connection, theirs = Pipe()
            handed.callback(theirs.close)
            lifeline, self._lifeline = Pipe(duplex=False)
            handed.callback(lifeline.close)
            numbers = [theirs.fileno(), lifeline.fileno(), slots, loader]
            # Held back in this thread, which the process starts with: before it can ignore Ctrl-C,
            # it shouldn't hear it.
            blocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
            handed.callback(signal.pthread_sigmask, signal.SIG_SETMASK, blocked)
            self._process = subprocess.Popen(
                [sys.executable, "-c", _START, *map(str, [*numbers, *sys.path])],
                stdin=subprocess.DEVNULL,
                pass_fds=numbers,
            )
        self.pid = self._process.pid

    def send(self, message: object) -> None:
        """Say how slots and loader lie; then have a run read into a slot: ``(run, slot, turn)``."""
        with suppress(OSError):  # it is dead: whoever waits for the answer says so
            self._connection.send_bytes(pickle.dumps(message))

    def receive(self, run: Run) -> tuple[Any, ...]:
        """Wait for the answer to the oldest call, which was to read a run.

        It is ``("read", where arrays lie)`` or ``("raised", pickled exception, its traceback)``;
        WorkerError if the process ended, or was busy for too long.
        """
        until = time.monotonic() + self._seconds
        try:
            while not self._connection.poll(_LOOK_SECONDS):
                if self._process.poll() is not None and not self._connection.poll(0):
                    raise EOFError
                if time.monotonic() > until:
                    self._hung = True
                    raise EOFError
            answer: tuple[Any, ...] = pickle.loads(self._connection.recv_bytes())
        except (EOFError, OSError):
            raise self._death(run) from None
        return answer

    def original(self, run: Run, pickled: bytes | None, text: str) -> BaseException:
        """Return the exception that reading raised, with its traceback as a note."""
        try:
            error = made_again(pickled or b"")
        except Exception:  # whatever it takes to make the exception again may fail
            last = text.rstrip().rpartition("\n")[2]
            error = WorkerError(
                "an exception must be picklable to come out of a worker process; this one isn't: "
                f"{last}",
                pid=self.pid,
                epoch=run.epoch,
                step=run.start,
            )
        # Not as the cause, which TensorFlow leaves out.
        error.add_note(f"In worker process {self.pid}:\n\n{text}")
        return error

    def _death(self, run: Run) -> WorkerError:
        self.kill()
        code = self.wait()
        one = run.stop - run.start == 1
        steps = f"step {run.start}" if one else f"steps {run.start} to {run.stop - 1}"
        ended = f"exited with code {code}"
        hint = "Did a mapped function, or a library that it calls, end the process?"
        name = None
        if self._hung:
            ended = f"gave no answer for {self._seconds:g} s and was ended"
            hint = "Set OOCDATA_WORKER_SECONDS in the environment if reading may take longer."
        elif code is None or code < 0:
            number = -(code or -signal.SIGKILL)
            known = {each.value: each.name for each in signal.Signals}
            name = known.get(number, f"signal {number}")
            ended = f"was ended by {name}"
            hint = "Did a mapped function crash? Set PYTHONFAULTHANDLER=1 to see where."
            if name == "SIGKILL":
                hint = "Linux does so when memory runs out: use fewer workers, or smaller batches."
        return WorkerError(
            "a worker process must live until its batches are read; "
            f"process {self.pid} {ended} before it had read {steps} of epoch {run.epoch}. {hint}",
            pid=self.pid,
            exit_code=None if name or self._hung else code,
            signal=name,
            epoch=run.epoch,
            step=run.start,
        )

    def kill(self) -> None:
        """End the process now, whatever it is doing; it has nothing of ours to lose."""
        self._process.kill()

    def wait(self) -> int | None:
        """Wait for the end of a process that was killed; return what it ended with."""
        try:
            # Only a process in the midst of a system call that never returns outlives SIGKILL.
            return self._process.wait(_LOOK_SECONDS * 4)
        except subprocess.TimeoutExpired:
            return None

    def forget(self) -> None:
        """Leave the process to the one that this is a fork of."""
        self._process.returncode = 0  # not ours to end or to wait for
        self._connection.close()
        self.close()

    def close(self) -> None:
        """Let go of the process: it ends, if it still lives."""
        self._lifeline.close()
