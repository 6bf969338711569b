"""Test that progress bars are shown on a terminal only."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from oocdata.tools.report import progress


def test_a_terminal_sees_share_and_time_left() -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=80, color_system=None)
    with progress("reading a[0].npy", 40 * 2**20, console=console) as advance:
        advance(10 * 2**20)
        advance(20 * 2**20)
    (line,) = [line for line in console.file.getvalue().splitlines() if "75%" in line][-1:]  # type: ignore[attr-defined]
    assert "reading a[0].npy" in line
    assert "…" not in line


@pytest.mark.parametrize("shown", [True, False])
def test_a_pipe_sees_nothing(shown: bool, capsys: pytest.CaptureFixture[str]) -> None:
    with progress("reading", 3, shown=shown) as advance:
        advance(3)
    assert capsys.readouterr() == ("", "")
