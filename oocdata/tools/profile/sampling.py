"""Where the time of reading threads goes, by looking at them a few hundred times a second.

A sampling profiler for one question. A thread of its own wakes up every three milliseconds, takes
the GIL, and notes of every thread that is reading which function of this package it is in
(`sys._current_frames`) and what the kernel says of it (the state in ``/proc/self/task/*/stat``,
proc(5)): whether it runs or is blocked. Nothing is wrapped, so what is looked at runs as
it always does.

Who holds the GIL can't be seen from inside, for whoever looks holds it. But it can be told whether
looking had to wait for it: the thread then gave up the processor once more than its sleep alone
takes (``ru_nvcsw``, getrusage(2)). So often was somebody running Python, and threads that are
blocked on a lock at that moment, though not in a call that waits, were waiting for the GIL.

While it looks, threads take turns with the GIL more often than usual (`sys.setswitchinterval`).

Without ``/proc`` (not Linux) only functions are known: then waiting counts as what it waits in,
and the GIL as unknown.
"""

from __future__ import annotations

import ctypes
import gc
import os
import sys
import threading
from collections import defaultdict
from contextlib import suppress
from dataclasses import asdict, dataclass
from itertools import starmap
from operator import attrgetter, itemgetter
from pathlib import Path
from time import sleep
from types import CodeType, TracebackType
from typing import Any

__all__ = ["Sampler", "Spent"]

_INTERVAL = 0.003
"""Seconds from one look to the next."""

_SWITCH = 0.0002
"""Seconds after which whoever runs Python must let the next one: less than the usual five
milliseconds, or what is seen would nearly always be where the GIL is given up by itself."""

_PACKAGE = f"{Path(__file__).parents[2]}{os.sep}"

_READING = ("sources/requests.py", "sources/ring.py")
"""Nothing but reads; elsewhere a page that is waited for in sleep is one of memory."""

_FETCHING = {"sources/hdf5/chunked.py": "_read", "sources/zarr/folder_chunks.py": "_decode"}

_DECODING = (
    "sources/codecs.py",
    "sources/hdf5/decode.py",
    "sources/hdf5/shuffled.py",
    "sources/zarr/codecs.py",
)
_LIBRARIES = (
    "sources/hdf5/reader.py",
    "sources/hdf5/virtual.py",
    "sources/zarr/readers.py",
    "sources/zarr/tensorstore.py",
)
"""Here a library reads and decodes, perhaps in threads of its own while this one waits."""

_FOREIGN = {"tools/profile/counts.py": "read_into", "sources/memory.py": "read_box"}
"""What calls a source that isn't of this package, or an object that slices."""

_WAITS = ("threading.py", "queue.py", "_base.py", "thread.py")


@dataclass(frozen=True, slots=True)
class Spent:
    """What reading threads did, as shares of the time in which they had something to do.

    Attributes
    ----------
    disk : float
        In a read of a file: blocked, or at work in the kernel for what came from the disk.
    decode : float
        Undoing compression; also inside h5py, zarr-python or TensorStore, which read as well.
    copy : float
        Copying: out of the page cache, out of decoded chunks, rearranging.
    map : float
        In functions given to `map`.
    source : float
        In a source that is not part of this package.
    python : float
        Running Python: which rows, which chunks, handing over.
    gil : float
        Waiting for the GIL.
    threads : float
        How many had something to do, on average.
    samples : int
        How often they were looked at while any had.
    """

    disk: float = 0.0
    decode: float = 0.0
    copy: float = 0.0
    map: float = 0.0
    source: float = 0.0
    python: float = 0.0
    gil: float = 0.0
    threads: float = 0.0
    samples: int = 0

    @property
    def shares(self) -> dict[str, float]:
        """The shares alone, the largest first."""
        found = {name: value for name, value in asdict(self).items() if name in _KINDS}
        return dict(sorted(found.items(), key=lambda pair: -pair[1]))


_KINDS = ("disk", "decode", "copy", "map", "source", "python", "gil")


class Sampler:
    """Looks at the threads that read while it is entered.

    Examples
    --------
    >>> with Sampler() as sampler:
    ...     pass
    >>> sampler.spent().samples  # nobody read anything
    0
    """

    def __init__(self) -> None:
        self._consumer = threading.get_ident()
        self._switch = sys.getswitchinterval()
        self._ended = False
        self._counted: defaultdict[str, float] = defaultdict(float)
        self._samples = 0
        self._states = _States()
        self._thread = threading.Thread(target=self._look_on, name="oocdata-sampler", daemon=True)

    def __enter__(self) -> Sampler:
        sys.setswitchinterval(_SWITCH)
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._ended = True
        self._thread.join()
        sys.setswitchinterval(self._switch)
        self._states.close()

    def spent(self, from_disk: float = 0.0) -> Spent:
        """Return where the time went; to be called when it is left.

        Parameters
        ----------
        from_disk : float
            The share of what was fetched that came from the disk, and not from the page cache. The
            kernel works for either, and so much of that work is the disk's.
        """
        counted = self._counted.copy()
        reading = counted.pop("read", 0.0)
        counted["disk"] += reading * from_disk
        counted["copy"] += reading * (1 - from_disk)
        total = sum(counted.values())
        if not total:
            return Spent()
        shares: dict[str, Any] = {name: counted[name] / total for name in _KINDS}
        return Spent(**shares, threads=total / max(1, self._samples), samples=self._samples)

    def _look_on(self) -> None:
        switches = _switches()
        while not self._ended:
            sleep(_INTERVAL)
            # One for the sleep; one more, if the GIL was not to be had at once.
            now = _switches()
            contended = switches is not None and now is not None and now - switches > 1
            self._look(contended)
            switches = _switches()

    def _look(self, contended: bool) -> None:
        """Note what each thread does."""
        me = threading.get_ident()
        running: list[str] = []
        blocked = 0
        found: defaultdict[str, float] = defaultdict(float)
        for thread in threading.enumerate():
            if thread.ident is None or thread.ident in (me, self._consumer):
                continue
            kind = _kind(thread.ident)
            if kind is None:
                continue
            state = self._states.of(thread.native_id or 0)
            if kind in ("map", "source", "library"):
                found["decode" if kind == "library" else kind] += 1
            elif (state == "D" and kind == "read") or (state == "S" and not contended):
                # Asleep, though nobody had the GIL: in the kernel, which fetches; else in a lock.
                found["disk"] += kind == "read"
            elif state == "S":
                blocked += 1
            else:
                running.append(kind)
        for kind in [*running, *["gil"] * blocked]:
            found[kind] += 1
        if contended and not found["map"]:
            # One of these had the GIL until now: it gave it up by itself, or was made to.
            for kind in [*running, *["gil"] * blocked]:
                found[kind] -= 1 / (len(running) + blocked)
            found["python"] += 1
        if sum(found.values()) > 0:
            for kind, number in found.items():
                self._counted[kind] += number
            self._samples += 1


_STEP, _DEEPEST = 4, 64
"""So many functions of a stack are asked for at first, and at most. Below those of this package
there are always a few of `threading`, so more can be asked for until one of this package is met."""

_CODES = {
    depth: attrgetter(*("f_back." * place + "f_code" for place in range(depth)))
    for depth in range(_STEP, _DEEPEST + 1, _STEP)
}


def _codes(thread: int, depth: int) -> tuple[CodeType, ...] | None:
    """Return the innermost functions that a thread is in; None where it is in fewer.

    In one call that is not Python: a frame must not be held while others run, for it crashes when
    it outlives the generator that it is of (gh-125723, in Python before 3.13.1). So nothing may
    come between here; nor the garbage collector, which runs anybody's code.
    """
    frames = map(itemgetter(thread), starmap(sys._current_frames, ((),)))
    collects = gc.isenabled()
    gc.disable()
    try:
        return next(map(_CODES[depth], frames))
    except (AttributeError, KeyError):  # fewer; or the thread has ended
        return None
    finally:
        if collects:
            gc.enable()


def _kind(thread: int) -> str | None:
    """Return what a thread is at, by the functions it is in; None if it doesn't read or waits."""
    for depth in range(_STEP, _DEEPEST + 1, _STEP):
        codes = _codes(thread, depth)
        if codes is None:
            return None
        ours = [code for code in codes if code.co_filename.startswith(_PACKAGE)]
        if ours:
            return _kind_of(ours[0], codes[0])
    return None


def _kind_of(code: CodeType, innermost: CodeType) -> str | None:
    """Return what a thread is at, by the innermost function of this package and of all."""
    module = code.co_filename[len(_PACKAGE) :].replace(os.sep, "/")
    if module == "datasets/map.py" and code.co_name == "_call":
        return "map"
    if _FOREIGN.get(module) == code.co_name or module == "testing.py":
        return "source"
    if module in _LIBRARIES:
        return "library"
    if innermost is not code and innermost.co_filename.endswith(_WAITS):
        return None
    if module in _READING or _FETCHING.get(module) == code.co_name:
        return "read"
    if module in _DECODING:
        return "decode"
    return "copy" if module.startswith("sources/") else "python"


def _switches() -> int | None:
    """Return how often this thread has given up the processor of its own will."""
    try:
        import resource  # not on every system

        return resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw
    except (ImportError, AttributeError):
        return None


class _States:
    """What the kernel says of threads: one letter each, as ps(1) shows it."""

    def __init__(self) -> None:
        self._open: dict[int, int] = {}
        self._buffer = ctypes.create_string_buffer(256)
        # PyDLL keeps the GIL: were it given up, whoever waits for it would no longer be seen to.
        self._pread: Any = None
        with suppress(AttributeError, OSError):
            self._pread = ctypes.PyDLL(None).pread

    def of(self, thread: int) -> str:
        """Return "R" (runs, or could), "D" (waits for a page), "S" (sleeps) or nothing."""
        number = self._open.get(thread)
        if number is None:
            try:
                number = os.open(f"/proc/self/task/{thread}/stat", os.O_RDONLY | os.O_CLOEXEC)
            except OSError:
                number = -1
            self._open[thread] = number
        if number < 0 or self._pread is None:
            return ""
        length = self._pread(number, self._buffer, 255, ctypes.c_long(0))
        # The name of a thread stands in brackets, and may hold anything.
        text = self._buffer.raw[: max(length, 0)].rpartition(b") ")[2]
        return text[:1].decode()

    def close(self) -> None:
        """Close what was opened."""
        for number in self._open.values():
            if number >= 0:
                os.close(number)
        self._open.clear()
