"""Submit many reads in one system call, outside the GIL, with Linux's io_uring.

With one call per read, the GIL is released and taken again for each of the dozens of reads of a
shuffled batch. io_uring takes all of them at once: the kernel copies cached pages and fetches the
others, many at a time, while other Python threads run. Compared with a loop, through `to_tf`,
shuffled rows of 200 bytes are 1.2 (batches of 32) to 2.1 times (of 256) as fast.

The kernel's interface (io_uring(7), io_uring_setup(2), io_uring_enter(2); structures in
linux/io_uring.h) is called by ctypes. Where io_uring is unavailable (an older kernel, a container
that forbids it, another system, ``OOCDATA_IO_URING=0``), `read_many` returns None, and the caller
reads one run at a time.

Ctrl-C may raise an exception between any two instructions. Submitted reads are waited for even so.
If a second Ctrl-C ends that wait too, the ring is never used again, but keeps a reference to the
memory that the kernel may still write to.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import sys
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocdata.box import Ints

_SETUP, _ENTER = 425, 426  # system calls, the same on every architecture
_READ, _GET_EVENTS, _SINGLE_MMAP = 22, 1, 1
_ENTRIES_OFFSET = 0x10000000
_ENTRIES = 512

# Positions of fields in `struct io_uring_params`, in units of 4 bytes. The fields in the last line
# are byte offsets into the mapping of both queues.
_SQ_ENTRIES, _CQ_ENTRIES, _FEATURES, _PARAMETERS = 0, 1, 5, 30
_SQ_HEAD, _SQ_TAIL, _SQ_ARRAY, _CQ_HEAD, _CQ_TAIL, _CQ_ENTRIES_AT = 10, 11, 16, 20, 21, 25

_SUBMISSION = np.dtype(
    {
        "names": ["opcode", "file", "offset", "address", "length", "user_data"],
        "formats": ["u1", "i4", "u8", "u8", "u4", "u8"],
        "offsets": [0, 4, 8, 16, 24, 32],
        "itemsize": 64,
    }
)
_COMPLETION = np.dtype([("user_data", "i8"), ("result", "i4"), ("flags", "u4")])


class _Ring:
    """A submission queue and a completion queue, used by one thread at a time."""

    def __init__(self) -> None:
        self._call = ctypes.CDLL(None, use_errno=True).syscall
        self._call.restype = ctypes.c_long
        parameters = np.zeros(_PARAMETERS, np.uint32)
        self._number = self._call(_SETUP, _ENTRIES, ctypes.c_void_p(parameters.ctypes.data))
        if self._number < 0:
            raise OSError(ctypes.get_errno(), "no io_uring")
        fields = parameters.tolist()
        if not fields[_FEATURES] & _SINGLE_MMAP:  # before Linux 5.4
            os.close(self._number)
            raise OSError("this kernel's io_uring is too old")
        count, completions = fields[_SQ_ENTRIES], fields[_CQ_ENTRIES]
        end = fields[_CQ_ENTRIES_AT] + _COMPLETION.itemsize * completions
        flags = mmap.MAP_SHARED | mmap.MAP_POPULATE
        queue = mmap.mmap(self._number, max(fields[_SQ_ARRAY] + 4 * count, end), flags=flags)
        entries = mmap.mmap(
            self._number, _SUBMISSION.itemsize * count, flags=flags, offset=_ENTRIES_OFFSET
        )

        def words(at: int, count: int = 1) -> NDArray[np.uint32]:
            return np.frombuffer(queue, np.uint32, count, fields[at])

        self._taken, self.submitted = words(_SQ_HEAD), words(_SQ_TAIL)
        self._read, self.completed = words(_CQ_HEAD), words(_CQ_TAIL)
        words(_SQ_ARRAY, count)[:] = np.arange(count)
        submissions = np.frombuffer(entries, _SUBMISSION, count)
        submissions["opcode"] = _READ
        # The position in the submission queue identifies a read in the completion queue.
        submissions["user_data"] = self._entries = np.arange(count)
        self._file, self._offset = submissions["file"], submissions["offset"]
        self._address, self._length = submissions["address"], submissions["length"]
        done = np.frombuffer(queue, _COMPLETION, completions, fields[_CQ_ENTRIES_AT])
        self._done, self._result = done["user_data"], done["result"]
        self.target: object = None

    def read(
        self, file: int | Ints, offsets: Ints, addresses: Ints, lengths: Ints, results: Ints
    ) -> None:
        """Read at most `_ENTRIES` runs; write the result of each to `results`, see `read_many`."""
        count = offsets.size
        first = int(self.submitted[0])
        entries = (self._entries[:count] + first) % _ENTRIES
        self._file[entries] = file
        self._offset[entries], self._address[entries] = offsets, addresses
        self._length[entries] = lengths
        try:
            self.submitted[0] = (first + count) & 0xFFFFFFFF
            self._wait()
        except BaseException:
            self._wait()
            raise
        finally:
            head = int(self._read[0])
            self._read[0] = self.completed[0]
        completed = (self._entries[:count] + head) % self._done.size
        results[(self._done[completed] - first) % _ENTRIES] = self._result[completed]

    def _wait(self) -> None:
        """Submit the queued reads, and wait until all of them are complete."""
        while True:
            end = int(self.submitted[0])
            pending = (end - int(self.completed[0])) & 0xFFFFFFFF
            if not pending:
                return
            queued = (end - int(self._taken[0])) & 0xFFFFFFFF
            status = self._call(
                _ENTER, self._number, queued, pending, _GET_EVENTS, None, ctypes.c_size_t(0)
            )
            if status < 0 and ctypes.get_errno() not in (4, 11, 16):  # EINTR, EAGAIN, EBUSY
                # Withdraw the reads that were not submitted. Earlier ones are complete by now, or
                # the caller waits for them in its next call of `_wait`.
                self.submitted[0] = self._taken[0]
                raise OSError(ctypes.get_errno(), "io_uring failed")


_rings: list[_Ring] = []
"""All rings; a ring that Ctrl-C interrupted must not be closed while the kernel writes for it."""

_idle: list[_Ring] = []
_usable = sys.platform == "linux" and os.environ.get("OOCDATA_IO_URING", "1") != "0"


def read_many(
    file: int | Ints, offsets: Ints, addresses: Ints, lengths: Ints, target: Any
) -> Ints | None:
    """Read runs of bytes at `offsets` in a file into memory at `addresses`, in a few system calls.

    `file` is the descriptor of all runs, or of each run. `target` owns the memory, and is
    referenced for as long as the kernel may write there.

    Returns the bytes read per run, int64: fewer than requested at the end of the file, a negative
    error number for a run that failed. None where this system has no io_uring.
    """
    global _usable
    if not _usable:
        return None
    try:
        ring = _idle.pop()
    except IndexError:
        try:
            ring = _Ring()
        except OSError:
            _usable = False
            return None
        _rings.append(ring)
    results = np.empty(offsets.size, np.int64)
    ring.target = target
    try:
        for start in range(0, offsets.size, _ENTRIES):
            batch = slice(start, start + _ENTRIES)
            files = file if isinstance(file, int) else file[batch]
            ring.read(files, offsets[batch], addresses[batch], lengths[batch], results[batch])
    except OSError:
        _usable = False
        return None
    finally:
        if ring.submitted[0] == ring.completed[0]:
            ring.target = None
            _idle.append(ring)
    return results


# The parent goes on using these queues; the child makes its own.
os.register_at_fork(after_in_child=_idle.clear)
