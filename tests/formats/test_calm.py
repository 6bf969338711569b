"""Warnings of zarr-python that are for writers are silent, whichever threads decode."""

from __future__ import annotations

import os
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor

import pytest

from oocdata.formats.zarr.store import calm

MESSAGE = "Numcodecs codecs are not in the Zarr version 3 specification"


def silenced(times: int) -> int:
    for _ in range(times):
        with calm():
            warnings.warn(MESSAGE, UserWarning, stacklevel=1)
    return times


def test_no_thread_ends_the_silence_of_another() -> None:
    before = list(warnings.filters)
    with ThreadPoolExecutor(8) as threads:
        assert sum(threads.map(silenced, [2000] * 8)) == 16_000
    assert list(warnings.filters) == before


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # Python 3.12 has one of forks
def test_forks_while_a_thread_is_inside() -> None:
    ended = threading.Event()

    def stay() -> None:
        while not ended.is_set():
            silenced(1)

    thread = threading.Thread(target=stay)
    thread.start()
    try:
        for _ in range(50):
            child = os.fork()
            if child == 0:
                os._exit(silenced(1))  # which would wait for a thread that is not here
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 1
    finally:
        ended.set()
        thread.join()
