"""Resident memory of a process and its children, what it holds itself told from mapped files."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Memory", "forget_peak", "memory", "peak"]


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes that are resident.

    Attributes
    ----------
    total : int
    anonymous : int
        What was allocated, and shared memory: gone only when it is given back.
    file : int
        Pages of mapped files, libraries among them: the kernel can drop them.
    """

    total: int
    anonymous: int
    file: int


def memory() -> Memory:
    """Return what this process and the processes it started hold now.

    On Linux from ``/proc/<process>/status``; elsewhere psutil tells the total alone, all of which
    then counts as anonymous.
    """
    import psutil

    me = psutil.Process()
    processes = [me.pid, *(child.pid for child in me.children(recursive=True))]
    found = [_of(process) for process in processes]
    return Memory(*(sum(part) for part in zip(*found, strict=True)))


def _of(process: int) -> tuple[int, int, int]:
    try:
        status = _status(process)
    except FileNotFoundError:
        if os.path.isdir("/proc/self"):  # the child is gone
            return 0, 0, 0
        import psutil

        total = int(psutil.Process(process).memory_info().rss)
        return total, total, 0
    anonymous = status.get("RssAnon", 0) + status.get("RssShmem", 0)
    return status.get("VmRSS", 0), anonymous, status.get("RssFile", 0)


def _status(process: int | str) -> dict[str, int]:
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    pairs = (line.split(":", 1) for line in lines)
    return {
        name: int(value.split()[0]) * 1024
        for name, value in pairs
        if name.startswith(("Vm", "Rss"))
    }


def forget_peak() -> None:
    """Make the kernel's record of this process's peak begin anew (``clear_refs`` in proc(5))."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return


def peak() -> int:
    """Return the most that this process alone held since `forget_peak`; 0 where nobody knows."""
    try:
        return _status("self").get("VmHWM", 0)
    except FileNotFoundError:
        return 0
