"""How much resident memory a stretch of a program takes, measured and not estimated."""

from __future__ import annotations

import gc
import threading
from types import TracebackType
from typing import Self

__all__ = ["PeakMemory", "resident_bytes", "settle"]

_STATUS = "/proc/self/status"
_SECONDS_BETWEEN = 0.01


def resident_bytes() -> int:
    """Return this process's resident set size as it is now."""
    try:
        return _from_status("VmRSS")
    except OSError:
        return _by_psutil()


def settle() -> None:
    """Give back what can be given back, so that what comes next starts from a steady size."""
    import ctypes

    gc.collect()
    try:
        # glibc keeps freed memory; without this its later reuse would hide growth.
        ctypes.CDLL(None).malloc_trim(0)
    except (AttributeError, OSError):  # another C library
        return


class PeakMemory:
    """The highest resident set size while a ``with`` block runs.

    On Linux this is the kernel's own record, which misses nothing (``VmHWM`` in proc(5), reset by
    writing 5 to ``clear_refs``). Elsewhere the size is looked at a hundred times a second.

    Attributes
    ----------
    peak : int
        Bytes; once the block has ended.
    exact : bool
        Whether it is the kernel's record.

    Examples
    --------
    >>> with PeakMemory() as memory:
    ...     block = bytearray(50_000_000)
    >>> memory.peak > 50_000_000
    True
    """

    def __init__(self) -> None:
        self.peak = 0
        self.exact = False
        self._done = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        self.exact = _reset_peak()
        if not self.exact:
            self.peak = resident_bytes()
            self._done.clear()
            self._thread = threading.Thread(target=self._watch, name="oocdata-memory", daemon=True)
            self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._thread is None:
            self.peak = _from_status("VmHWM")
            return
        self._done.set()
        self._thread.join()
        self._thread = None
        self.peak = max(self.peak, resident_bytes())

    def _watch(self) -> None:
        while not self._done.wait(_SECONDS_BETWEEN):
            self.peak = max(self.peak, resident_bytes())


def _reset_peak() -> bool:
    try:
        with open("/proc/self/clear_refs", "w") as file:
            file.write("5")
    except OSError:
        return False
    return True


def _from_status(name: str) -> int:
    with open(_STATUS) as file:
        for line in file:
            if line.startswith(f"{name}:"):
                return int(line.split()[1]) * 1024
    raise OSError(f"{_STATUS} has no {name}")


def _by_psutil() -> int:
    from oocdata.errors import MissingDependencyError

    try:
        import psutil
    except ImportError as error:
        raise MissingDependencyError(
            f"memory is measured with psutil on this system; {error}. Install it: "
            "pip install 'oocdata[demo]'."
        ) from error
    return int(psutil.Process().memory_info().rss)
