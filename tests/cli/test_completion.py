"""What the shell offers while a command is typed."""

from __future__ import annotations

import shlex

import pytest
from typer.testing import CliRunner

from oocdata.cli import app


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("inf",), ["info"]),
        (("info", "sim.h5::flow/u", "--missing", ""), ["error", "fill"]),
        (("info", "--verb"), ["--verbose"]),
        (("convert", "ds.npy", "a.h5", "--shuffle", ""), ["bit", "byte", "none"]),
    ],
)
def test_what_is_offered(words: tuple[str, ...], expected: list[str]) -> None:
    line = shlex.join(("oocdata", *words[:-1]))
    asked = {"COMP_WORDS": f"{line} {words[-1]}", "COMP_CWORD": str(len(words))}
    env = {"_OOCDATA_COMPLETE": "complete_bash", **asked}
    said = CliRunner(env=env).invoke(app, prog_name="oocdata").stdout
    assert sorted(filter(None, said.splitlines())) == expected
