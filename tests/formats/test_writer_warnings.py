"""Silence zarr-python's warnings for writers, whichever threads decode."""

from __future__ import annotations

import os
import sys
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor

import pytest

from oocdata.formats.zarr.store import no_writer_warnings
from oocdata.tools.preview import Preview

MESSAGE = "Numcodecs codecs are not in the Zarr version 3 specification"


def silenced(times: int) -> int:
    for _ in range(times):
        with no_writer_warnings():
            warnings.warn(MESSAGE, UserWarning, stacklevel=1)
    return times


def test_no_thread_ends_the_silence_of_another() -> None:
    before = list(warnings.filters)
    with ThreadPoolExecutor(8) as threads:
        assert sum(threads.map(silenced, [2000] * 8)) == 16_000
    assert list(warnings.filters) == before


class Figure:
    """A figure with a letter that the font lacks."""

    def figure(self) -> Figure:
        return self

    def savefig(self, *_: object, **__: object) -> None:
        warnings.warn("Glyph 9 missing from font", UserWarning, stacklevel=1)


def drawn(times: int) -> int:
    for _ in range(times):
        Preview._encoded(Figure(), "png")
    return times


def test_a_picture_is_drawn_while_others_decode() -> None:
    before, usual = list(warnings.filters), sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(4) as threads:
            works = [threads.submit(work, 5000) for work in (silenced, drawn) * 2]
            assert sum(work.result() for work in works) == 20_000
    finally:
        sys.setswitchinterval(usual)
    assert list(warnings.filters) == before


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # Python 3.12 has one of forks
def test_a_fork_while_a_thread_is_inside() -> None:
    inside, ended = threading.Event(), threading.Event()

    def stay() -> None:
        with no_writer_warnings():
            inside.set()
            ended.wait()

    thread = threading.Thread(target=stay)
    thread.start()
    try:
        inside.wait()
        child = os.fork()
        if child == 0:
            os._exit(silenced(1))  # which would wait for a thread that is not here
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 1
    finally:
        ended.set()
        thread.join()
