"""Completion of commands and options, through the protocol of a shell."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from oocdata.cli import app


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("inf",), ["info"]),
        (("info", "sim.h5::flow/u", "--missing", ""), ["error", "fill"]),
        (("info", "--verb"), ["--verbose"]),
    ],
)
def test_completions(words: tuple[str, ...], expected: list[str]) -> None:
    line = " ".join(("oocdata", *words))
    env = {"_OOCDATA_COMPLETE": "complete_bash", "COMP_WORDS": line, "COMP_CWORD": str(len(words))}
    said = CliRunner(env=env).invoke(app, prog_name="oocdata").stdout
    assert sorted(filter(None, said.splitlines())) == expected
