"""One worker process, seen from the process that started it."""

from __future__ import annotations

import pickle
import signal
import subprocess
import sys
import time
from contextlib import ExitStack, suppress
from multiprocessing.connection import Pipe
from typing import TYPE_CHECKING, Any

from oocdata.errors import WorkerError
from oocdata.reading.workers.child import load_error

if TYPE_CHECKING:
    from oocdata.runs import Run

_POLL_SECONDS = 0.5
"""How often to check that a process is alive, in case its end of the connection stays open."""

_START = (
    "import sys; sys.path[:] = sys.argv[5:]; from oocdata.reading.workers.child import main; main()"
)


class Process:
    """A process that reads runs into slots of shared memory, one after the other.

    `slots` and `loader` are descriptors of shared memory; `seconds` is how long the process may be
    busy with one run. The pool counts in `tasks` those that were sent and are not yet answered.
    """

    def __init__(self, slots: int, loader: int, seconds: float) -> None:
        self.tasks = 0
        self._seconds = seconds
        self._hung = False
        with ExitStack() as stack:  # closes the child's ends of the pipes here, once it has them
            self._connection, child_end = Pipe()
            stack.callback(child_end.close)
            lifeline, self._lifeline = Pipe(duplex=False)
            stack.callback(lifeline.close)
            descriptors = [child_end.fileno(), lifeline.fileno(), slots, loader]
            # The child inherits this thread's signal mask: Ctrl-C is blocked until it ignores it.
            blocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
            stack.callback(signal.pthread_sigmask, signal.SIG_SETMASK, blocked)
            self._process = subprocess.Popen(
                [sys.executable, "-c", _START, *map(str, [*descriptors, *sys.path])],
                stdin=subprocess.DEVNULL,
                pass_fds=descriptors,
            )
        self.pid = self._process.pid

    def send(self, message: object) -> None:
        """Send the sizes of loader and slots, or a task to read a run: ``(run, slot, turn)``."""
        with suppress(OSError):  # the process is dead, which `receive` reports
            self._connection.send_bytes(pickle.dumps(message))

    def receive(self, run: Run, seconds: float | None = None) -> tuple[Any, ...]:
        """Wait for the answer to the oldest task, which was to read `run`.

        The answer is ``("read", places of the arrays)`` or ``("raised", pickled exception,
        traceback)``. Raises WorkerError if the process has ended, or was busy for too long: for
        `seconds`, if given.
        """
        seconds = self._seconds if seconds is None else seconds
        deadline = time.monotonic() + seconds
        try:
            while not self._connection.poll(min(seconds, _POLL_SECONDS)):
                if not self.is_alive and not self._connection.poll(0):
                    raise EOFError
                if time.monotonic() > deadline:
                    self._hung = True
                    raise EOFError
            answer: tuple[Any, ...] = pickle.loads(self._connection.recv_bytes())
        except (EOFError, OSError):
            raise self._death(run) from None
        return answer

    def exception(self, run: Run, pickled: bytes | None, text: str) -> BaseException:
        """Return the exception that reading raised, with its traceback as a note."""
        try:
            error = load_error(pickled or b"")
        except Exception:  # unpickling runs code of the exception's class
            last = text.rstrip().rpartition("\n")[2]
            error = WorkerError(
                "an exception must be picklable to come out of a worker process; this one isn't: "
                f"{last}",
                pid=self.pid,
                epoch=run.epoch,
                step=run.start,
            )
        # As a note, because TensorFlow leaves out the cause.
        error.add_note(f"In worker process {self.pid}:\n\n{text}")
        return error

    def _death(self, run: Run) -> WorkerError:
        self.kill()
        code, name = self.wait(), None
        single = run.stop - run.start == 1
        steps = f"step {run.start}" if single else f"steps {run.start} to {run.stop - 1}"
        if self._hung:
            ended = f"gave no answer for {self._seconds:g} s (OOCDATA_WORKER_SECONDS) and was ended"
        elif code is None or code < 0:
            number = -(code or -signal.SIGKILL)
            name = next((one.name for one in signal.Signals if one == number), f"signal {number}")
            ended = f"was ended by {name}"
        else:
            ended = f"exited with code {code}"
        return WorkerError(
            f"a worker process must live until its batches are read; process {self.pid} {ended} "
            f"before it had read {steps} of epoch {run.epoch}. Did a mapped function end it or "
            "crash (PYTHONFAULTHANDLER=1 shows where), or did memory run out?",
            pid=self.pid,
            exit_code=None if name or self._hung else code,
            signal=name,
            epoch=run.epoch,
            step=run.start,
        )

    @property
    def is_alive(self) -> bool:
        """Whether the process has not ended."""
        return self._process.poll() is None

    def kill(self) -> None:
        """End the process now, whatever it is doing; it has no state to lose."""
        self._process.kill()

    def wait(self) -> int | None:
        """Wait for a killed process to end; return its exit code, or None if it does not end."""
        try:
            # Only a process inside a system call that never returns survives SIGKILL.
            return self._process.wait(_POLL_SECONDS * 4)
        except subprocess.TimeoutExpired:
            return None

    def forget(self) -> None:
        """Leave the process to the parent, in a fork of it."""
        self._process.returncode = 0  # so that Popen does not wait for it
        self._connection.close()
        self.close()

    def close(self) -> None:
        """Release the process, which ends if it is still alive."""
        self._lifeline.close()
