"""Bars on a terminal, nothing elsewhere; and passes over an array in blocks."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_array_equal
from rich.console import Console

import oocdata as ooc
from oocdata.tools.passes import block_rows, blocks
from oocdata.tools.progress import progress


def test_a_terminal_sees_amount_rate_and_time_left() -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=80, color_system=None)
    with progress("reading", 40 * 2**20, console=console) as advance:
        advance(10 * 2**20)
        advance(20 * 2**20)
    (line,) = [line for line in console.file.getvalue().splitlines() if "75%" in line][-1:]  # type: ignore[attr-defined]
    assert "reading" in line
    assert "30.0 MiB of 40.0 MiB" in line
    assert "/s" in line
    assert "…" not in line


def test_what_is_counted_is_named() -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=80, color_system=None)
    with progress("reading", 40_000, "elements", console=console) as advance:
        advance(40_000)
    assert "40,000 of 40,000 elements" in console.file.getvalue()  # type: ignore[attr-defined]


@pytest.mark.parametrize("shown", [True, False])
def test_a_pipe_sees_nothing(shown: bool, capsys: pytest.CaptureFixture[str]) -> None:
    with progress("reading", 3, shown=shown) as advance:
        advance(3)
    assert capsys.readouterr() == ("", "")


@given(
    rows=st.integers(0, 60),
    nbytes=st.integers(1, 400),
    part=st.slices(60),
)
def test_every_row_once_in_order(rows: int, nbytes: int, part: slice) -> None:
    array = np.arange(rows * 3, dtype="f4").reshape(rows, 3)
    view = ooc.open(array)[part]
    assert view.storage.chunks is None
    read = list(blocks(view, nbytes))
    expected = array[part]
    assert [first for first, _ in read] == list(range(0, len(expected), block_rows(view, nbytes)))
    assert_array_equal(np.concatenate([expected[:0], *(rows for _, rows in read)]), expected)


def test_blocks_are_whole_chunks(tmp_path: Path) -> None:
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("u", data=np.zeros((100, 4)), chunks=(7, 4), compression="gzip")
    view = ooc.open(str(tmp_path / "a.h5"))
    assert block_rows(view, 32 * 20) == 14  # not 20
    assert block_rows(view, 32 * 5) == 5  # a chunk is larger
    assert block_rows(view, 1) == 1
    assert block_rows(view, 10**9) == 100
