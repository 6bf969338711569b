"""A network of its own, behind a delay and a rate: for servers that are far away.

A network namespace is one end, this machine's network the other. Between them are two TUN devices,
and a process that carries packets late (``servers.delay``), as ``tc netem`` does where the kernel
has it, which many kernels of virtual machines have not. Connections are the kernel's own on both
ends: they take a round trip to open, start slowly and have windows, as over a real link.
"""

from __future__ import annotations

import fcntl
import math
import os
import shutil
import signal
import subprocess
import sys
from contextlib import ExitStack, suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from servers import delay
from servers.program import Program, UnavailableError

__all__ = ["Link", "usable"]

SLOTS = 200  # links that can be on a machine at once

# How servers in it send. BBR, the default of some machines, goes on pacing a connection by what it
# delivered at first: of two alike programs one stayed half as fast as the other for ten epochs. And
# connections that rest while another program has its turn are not to start slowly again.
_SENDING = {"tcp_congestion_control": "reno", "tcp_slow_start_after_idle": "0"}


def usable() -> str:
    """Return why there can be no link on this machine, or nothing."""
    if sys.platform != "linux" or os.geteuid() != 0:
        return "a link needs root on Linux"
    if shutil.which("ip") is None:
        return "a link needs the command ip (Debian: apt-get install iproute2)"
    try:
        os.close(os.open("/dev/net/tun", os.O_RDWR))
    except OSError as error:
        return f"a link needs TUN devices: {error}"
    tried = subprocess.run(["unshare", "--net", "true"], capture_output=True, text=True)
    return f"a link needs network namespaces: {tried.stderr.strip()}" if tried.returncode else ""


class Link:
    """Make a network that is reached after a delay; a context manager.

    What a killed process left of its link is removed by the next link.

    Start servers in it with ``Nginx(folder, link)`` or ``S3(link=link)``, or any program with
    ``command`` before its own.

    Parameters
    ----------
    delay_ms
        The round trip, in milliseconds: half of it each way.
    rate_mbit
        Megabits a second, each way; by default no limit.

    Attributes
    ----------
    address
        The address inside of the link. Programs there listen at it.
    command
        What to put before a command to run it inside of the link.
    wire
        The number (pid) of the process that carries packets.

    Raises
    ------
    UnavailableError
        With the reason of ``usable``.
    """

    address: str
    command: tuple[str, ...]
    wire: int

    def __init__(self, delay_ms: float, rate_mbit: float | None = None) -> None:
        self.delay_ms, self.rate_mbit = delay_ms, rate_mbit
        self._undo = ExitStack()

    def __enter__(self) -> Self:
        reason = usable()
        if reason:
            raise UnavailableError(reason)
        with self._undo as undo:
            self._start(undo)
            self._undo = undo.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._undo.close()

    def _start(self, undo: ExitStack) -> None:
        slot, lock = _take_slot(undo)
        name = f"oocdata-{slot}"
        near, far = f"oocd{slot}near", f"oocd{slot}far"
        self.address = f"10.213.{slot}.2"
        self.command = ("ip", "netns", "exec", name)
        _remove(name)  # that of a run that was killed, for its slot is ours
        _ip("netns", "add", name)
        undo.callback(_remove, name)
        ends = []
        for device, address, inside in ((near, 1, ()), (far, 2, ("-n", name))):
            ends.append(delay.open_device(device))
            undo.callback(os.close, ends[-1])
            if inside:
                _ip("link", "set", device, "netns", name)
                _ip(*inside, "link", "set", "lo", "up")
            _ip(*inside, "address", "add", f"10.213.{slot}.{address}/30", "dev", device)
            _ip(*inside, "link", "set", device, "txqueuelen", "10000", "up")
        for setting, value in _SENDING.items():
            write = f"echo {value} > /proc/sys/net/ipv4/{setting}"
            _ip("netns", "exec", name, "sh", "-c", write)
        seconds = self.delay_ms / 2000
        rate = math.inf if self.rate_mbit is None else self.rate_mbit * 1e6 / 8
        self.wire = undo.enter_context(_Wire(ends, lock, seconds, rate)).number


class _Wire(Program):
    """The process that carries packets between the ends of a link."""

    def __init__(self, ends: list[int], lock: int, delay: float, rate: float) -> None:
        super().__init__(None)
        # With it, the devices' names are ours until this process has ended, whatever happens to us.
        self._lock = lock
        self._ends, self._delay, self._rate = ends, delay, rate

    def start(self) -> None:
        arguments = [str(text) for text in (*self._ends, self._delay, self._rate)]
        command = [sys.executable, "-I", "-S", delay.__file__, *arguments]
        self.run(command, pass_fds=[*self._ends, self._lock])


def _take_slot(undo: ExitStack) -> tuple[int, int]:
    """Return a number that no other link on this machine has, and the descriptor of its lock."""
    for slot in range(SLOTS):
        lock = os.open(f"/run/oocdata-link-{slot}.lock", os.O_RDWR | os.O_CREAT)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            continue
        undo.callback(os.close, lock)
        return slot, lock
    raise RuntimeError(f"all {SLOTS} links are in use")


def _remove(name: str) -> None:
    """End what runs in a namespace and remove it, if there is one."""
    if not Path("/run/netns", name).exists():
        return
    for number in _ip("netns", "pids", name).split():
        with suppress(ProcessLookupError):
            os.kill(int(number), signal.SIGKILL)
    _ip("netns", "delete", name)


def _ip(*words: str) -> str:
    return subprocess.run(["ip", *words], check=True, text=True, capture_output=True).stdout
