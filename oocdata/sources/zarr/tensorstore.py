"""TensorStore as this process may use it: not after a fork, with limits that all arrays share."""

from __future__ import annotations

import os
import sys
from typing import Any

from oocdata.errors import SourceError
from oocdata.sources.handles import handle
from oocdata.threads import cores

__all__ = ["LIBRARY_ERRORS", "first_line", "shared_context", "tensorstore"]

_INDEX_CACHE_BYTES = 8 << 20
_FILES_AT_ONCE = 16

LIBRARY_ERRORS = (ValueError, IndexError, OSError, RuntimeError, NotImplementedError, TypeError)
"""What TensorStore raises: a status code and a text in a builtin."""

_loaded_before_fork = False


def _note_fork() -> None:
    global _loaded_before_fork
    _loaded_before_fork = "tensorstore" in sys.modules


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_note_fork)


def tensorstore() -> Any:
    """Return the library, where it can still be used.

    Raises
    ------
    oocdata.errors.SourceError
        In a process forked after TensorStore was loaded: its threads do not exist there, and its
        first use would abort the process.
    """
    if _loaded_before_fork:
        raise SourceError(
            "TensorStore can't be used in a process that was forked after TensorStore was loaded. "
            "Start workers with 'spawn' or 'forkserver' (multiprocessing.get_context('spawn')), or "
            "fork before the first read."
        )
    import tensorstore as library

    return library


def shared_context() -> Any:
    """Return the limits that all arrays of this process share."""
    return handle("TensorStore context", _context)


def _context() -> Any:
    return tensorstore().Context(
        {
            "cache_pool": {"total_bytes_limit": 0},
            "cache_pool#indices": {"total_bytes_limit": _INDEX_CACHE_BYTES},
            "data_copy_concurrency": {"limit": cores()},
            "file_io_concurrency": {"limit": _FILES_AT_ONCE},
        }
    )


def first_line(error: BaseException) -> str:
    """Return what an error says, without the long specification that TensorStore appends."""
    text = str(error).strip() or type(error).__name__
    return text.splitlines()[0].split(" [tensorstore_spec")[0].rstrip(".")
