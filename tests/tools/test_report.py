"""Test that progress bars are shown on a terminal only."""

from __future__ import annotations

import io

import numpy as np
import pytest
from rich.console import Console

from oocdata.tools.report import fields_text, plain, progress, table, wrapped


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


def test_values_become_plain() -> None:
    found = plain({"rows": (range(3, 5),), "mean": np.array([0.5, np.nan])})
    assert found == {"rows": [[3, 5]], "mean": [0.5, None]}


def test_lines_are_wrapped_and_aligned() -> None:
    text = wrapped("Chunks of 100 rows are long for shuffling.", "- ", "  ", width=30)
    assert text.splitlines() == ["- Chunks of 100 rows are long", "  for shuffling."]
    assert fields_text([("codec", "gzip 4"), ("advice", "")]) == "codec      gzip 4"
    rows = [("sequential", "12,000"), ("shuffled", "900")]
    assert table(["way", "elements/s"], rows).splitlines() == [
        "way         elements/s",
        "sequential      12,000",
        "shuffled           900",
    ]
