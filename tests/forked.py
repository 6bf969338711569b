"""Work in a forked child of this process."""

from __future__ import annotations

import gc
import os
import tempfile
import warnings
from collections.abc import Callable

__all__ = ["in_a_fork"]


def in_a_fork(work: Callable[[], object]) -> str:
    """Return what `work` gives in a forked child, or what it raises, as text."""
    with tempfile.TemporaryFile("w+") as told, warnings.catch_warnings():
        # Python 3.12 warns of a fork beside threads, which other tests may have left.
        warnings.simplefilter("ignore", DeprecationWarning)
        gc.collect()
        child = os.fork()
        if child == 0:
            try:
                try:
                    told.write(str(work()))
                except BaseException as error:
                    told.write(f"{type(error).__name__}: {error}")
                told.flush()
            finally:
                os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        told.seek(0)
        return told.read()
