"""TensorStore as this process may use it: not after a fork, with limits that all arrays share."""

from __future__ import annotations

import os
import sys
from functools import cache
from typing import Any

from oocdata.errors import SourceError
from oocdata.memory import scratch_share
from oocdata.threads import cores

__all__ = ["INDEX_POOL", "LIBRARY_ERRORS", "first_line", "shared_context", "tensorstore", "usable"]

INDEX_POOL = "cache_pool#indices"
"""What TensorStore may keep: indices of shards, and directories of archives."""

LIBRARY_ERRORS = (ValueError, IndexError, OSError, RuntimeError, NotImplementedError, TypeError)
"""What TensorStore raises: a status code and a text in a builtin."""

_FILES_AT_ONCE = 16
_loaded_before_fork = False


def _note_fork() -> None:
    global _loaded_before_fork
    _loaded_before_fork = "tensorstore" in sys.modules


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_note_fork)


def usable() -> bool:
    """Return whether the library works in this process: its threads do not survive a fork."""
    return not _loaded_before_fork


def tensorstore() -> Any:
    """Return the library; raise where it is not usable: its first use would abort the process."""
    if not usable():
        raise SourceError(
            "TensorStore can't be used in a process that was forked after TensorStore was loaded. "
            "Start workers with 'spawn' or 'forkserver' (multiprocessing.get_context('spawn')), or "
            "fork before the first read."
        )
    import tensorstore as library

    return library


@cache
def shared_context() -> Any:
    """Return the limits that all arrays of this process share."""
    return tensorstore().Context(
        {
            "cache_pool": {"total_bytes_limit": 0},
            INDEX_POOL: {"total_bytes_limit": min(8 << 20, scratch_share() // 4)},
            "data_copy_concurrency": {"limit": cores()},
            "file_io_concurrency": {"limit": _FILES_AT_ONCE},
        }
    )


def first_line(error: BaseException) -> str:
    """Return what an error says, without the long specification that TensorStore appends."""
    text = str(error).strip() or type(error).__name__
    return text.splitlines()[0].split(" [tensorstore_spec")[0].rstrip(".")
