"""The command `oocdata`, called in this process."""

from __future__ import annotations

from typer.testing import CliRunner, Result

from oocdata.cli import app

__all__ = ["run"]


def run(*arguments: object, **environment: str) -> Result:
    """Call the command in a terminal of 80 columns."""
    runner = CliRunner(env={"COLUMNS": "80", **environment})
    return runner.invoke(app, [str(one) for one in arguments])
