"""Many reads in one call, outside the GIL: Linux's io_uring.

A shuffled batch is dozens of reads at scattered offsets. One call for each gives up and takes back
the GIL each time, and every taking back waits for whichever thread has it by then. Here all reads
of a batch are handed to the kernel at once: it copies what is cached and fetches what is not, many
at a time, while Python's other threads run.

The interface is the kernel's own (io_uring(7), io_uring_setup(2), io_uring_enter(2); structures in
linux/io_uring.h), by ctypes. Where there is none (an older kernel, a container that forbids it,
another system) `read_many` returns None, and whoever asked reads one by one.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import sys
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["read_many"]

_SETUP, _ENTER, _REGISTER = 425, 426, 427  # system calls, the same on every architecture
_READ, _GET_EVENTS, _SINGLE_MMAP = 22, 1, 1
_FIXED_FILE, _REGISTER_FILES, _UPDATE_FILES = 1, 2, 6
_QUEUE_OFFSET, _ENTRIES_OFFSET = 0, 0x10000000
_ENTRIES = 512
_LONGEST = 1 << 30

_WORTH_REGISTERING = 128
"""Reads of one file from which on the kernel need not look its descriptor up for each of them."""

_COMMON = ("head", "tail", "ring_mask", "ring_entries")
_FIRST = ("sq_entries", "cq_entries", "flags", "cpu", "idle", "features", "wq")
_PARAMETERS = np.dtype(
    [
        *((name, "u4") for name in _FIRST),
        ("reserved", "u4", 3),
        *((f"sq_{name}", "u4") for name in (*_COMMON, "flags_", "dropped", "array", "reserved")),
        ("sq_address", "u8"),
        *((f"cq_{name}", "u4") for name in (*_COMMON, "overflow", "cqes", "flags_", "reserved")),
        ("cq_address", "u8"),
    ]
)
_SUBMISSION = np.dtype(
    [
        ("opcode", "u1"),
        ("flags", "u1"),
        ("priority", "u2"),
        ("file", "i4"),
        ("offset", "u8"),
        ("address", "u8"),
        ("length", "u4"),
        ("how", "u4"),
        ("user_data", "u8"),
        ("rest", "u8", 3),
    ]
)
_UPDATE = np.dtype([("offset", "u4"), ("reserved", "u4"), ("files", "u8")])
_COMPLETION = np.dtype([("user_data", "u8"), ("result", "i4"), ("flags", "u4")])


class _Ring:
    """One submission and one completion queue; used by one thread at a time."""

    def __init__(self) -> None:
        library = ctypes.CDLL(None, use_errno=True)
        self._call = library.syscall
        self._call.restype = ctypes.c_long
        parameters = np.zeros(1, _PARAMETERS)
        self.number = self._system(_SETUP, _ENTRIES, ctypes.c_void_p(parameters.ctypes.data))
        found = parameters[0]
        if not int(found["features"]) & _SINGLE_MMAP:  # before Linux 5.4
            os.close(self.number)
            raise OSError("this kernel's io_uring is too old")
        self.entries = int(found["sq_entries"])
        completions = int(found["cq_entries"])
        nbytes = max(
            int(found["sq_array"]) + 4 * self.entries,
            int(found["cq_cqes"]) + _COMPLETION.itemsize * completions,
        )
        flags = mmap.MAP_SHARED | mmap.MAP_POPULATE
        queue = mmap.mmap(self.number, nbytes, flags=flags, offset=_QUEUE_OFFSET)
        entries = mmap.mmap(
            self.number, _SUBMISSION.itemsize * self.entries, flags=flags, offset=_ENTRIES_OFFSET
        )

        def word(name: str, count: int = 1) -> NDArray[np.uint32]:
            return np.frombuffer(queue, np.uint32, count, int(found[name]))

        self._submitted, self._taken, self._completed = (
            word("sq_tail"), word("cq_head"), word("cq_tail")
        )  # fmt: skip
        word("sq_array", self.entries)[:] = np.arange(self.entries)
        self._submissions = np.frombuffer(entries, _SUBMISSION, self.entries)
        self._submissions["opcode"] = _READ
        # The place of a read in its queue tells which one has ended.
        self._submissions["user_data"] = self._places = np.arange(self.entries)
        self._completions = np.frombuffer(queue, _COMPLETION, completions, int(found["cq_cqes"]))
        self._file = np.array([-1], np.int32)
        self._update = np.array([(0, 0, self._file.ctypes.data)], _UPDATE)
        try:
            self._system(
                _REGISTER, self.number, _REGISTER_FILES, ctypes.c_void_p(self._file.ctypes.data), 1
            )
            self._registers = True
        except OSError:  # before Linux 5.5
            self._registers = False

    def _system(self, *arguments: Any) -> int:
        result: int = self._call(*arguments)
        if result < 0:
            error = ctypes.get_errno()
            raise OSError(error, os.strerror(error))
        return result

    def register(self, file: int) -> bool:
        """Name the file that reads of file -1 are from, or none; return whether that was done."""
        if not self._registers:
            return False
        self._file[0] = file
        try:
            self._system(
                _REGISTER, self.number, _UPDATE_FILES, ctypes.c_void_p(self._update.ctypes.data), 1
            )
        except OSError:
            return False
        return True

    def read(
        self,
        file: int | NDArray[np.int64] | None,
        offsets: NDArray[np.int64],
        addresses: NDArray[np.int64],
        lengths: NDArray[np.int64],
    ) -> NDArray[np.int64]:
        """Read at most `entries` runs; return the bytes read of each, or minus an error number.

        A file of None is the one registered.
        """
        count = len(offsets)
        first = int(self._submitted[0])
        places = (first + self._places[:count]) % self.entries
        some = self._submissions
        some["flags"] = _FIXED_FILE if file is None else 0
        some["file"][places] = 0 if file is None else file
        some["offset"][places], some["address"][places] = offsets, addresses
        some["length"][places] = lengths
        self._submitted[0] = (first + count) & 0xFFFFFFFF
        head = int(self._taken[0])
        left, done = count, 0
        stopped: BaseException | None = None
        # Until all have ended, whatever happens: the kernel writes into the batch until then.
        while done < count:
            try:
                left -= self._system(
                    _ENTER, self.number, left, count - done, _GET_EVENTS, None, ctypes.c_size_t(0)
                )
            except InterruptedError:
                pass
            except OSError as error:
                if left == count:  # nothing was handed over
                    self._submitted[0] = first
                    raise
                stopped = error
            except BaseException as error:
                stopped = error
            done = (int(self._completed[0]) - head) & 0xFFFFFFFF
        ended = self._completions[(head + self._places[:count]) % len(self._completions)]
        results = np.empty(count, np.int64)
        results[(ended["user_data"].astype(np.int64) - first) % self.entries] = ended["result"]
        self._taken[0] = (head + count) & 0xFFFFFFFF
        if stopped is not None:
            raise stopped
        return results


_idle: list[_Ring] = []
_usable = sys.platform == "linux"


def read_many(
    file: int | NDArray[np.int64],
    offsets: NDArray[np.int64],
    addresses: NDArray[np.int64],
    lengths: NDArray[np.int64],
) -> NDArray[np.int64] | None:
    """Read runs of bytes into memory, all in a few calls.

    Parameters
    ----------
    file : int or ndarray of int64, shape (n,)
        A descriptor, or that of each run.
    offsets, addresses, lengths : ndarray of int64, shape (n,)
        Where each run lies in the file, where it goes in memory (which must stay there), its bytes.

    Returns
    -------
    ndarray of int64, shape (n,), or None
        Bytes read of each run, fewer than asked for at the end of the file; minus an error number
        where one failed. None where this system has no io_uring.

    Examples
    --------
    >>> import tempfile
    >>> out = np.zeros(4, np.uint8)
    >>> with tempfile.TemporaryFile() as file:
    ...     _ = file.write(bytes(range(100)))
    ...     file.flush()
    ...     at = out.ctypes.data + np.array([0, 2])
    ...     done = read_many(file.fileno(), np.array([10, 50]), at, np.array([2, 2]))
    >>> out.tolist() if done is not None else [10, 11, 50, 51]
    [10, 11, 50, 51]
    """
    global _usable
    if not _usable or int(lengths.max(initial=0)) > _LONGEST:
        return None
    try:
        ring = _idle.pop() if _idle else _Ring()
    except IndexError:  # another thread was faster
        return None
    except OSError:
        _usable = False
        return None
    parts = []
    single = file if isinstance(file, int) else None
    many = len(offsets) >= _WORTH_REGISTERING
    registered = single is not None and many and ring.register(single)
    try:
        for start in range(0, len(offsets), ring.entries):
            part = slice(start, start + ring.entries)
            files = file if isinstance(file, int) else file[part]
            runs = offsets[part], addresses[part], lengths[part]
            parts.append(ring.read(None if registered else files, *runs))
    except OSError:
        return None
    finally:
        if registered:
            ring.register(-1)  # or a file that is closed would stay open
        _idle.append(ring)
    return np.concatenate(parts)


def _forget_after_fork() -> None:
    # The queues are shared with the parent, who goes on using them.
    _idle.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_after_fork)
