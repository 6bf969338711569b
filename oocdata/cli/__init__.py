"""The command `oocdata`: one module for each of its commands, and what they share.

Every error is one paragraph on standard error; the exit code is 1, or 2 where the command was
called wrongly. Nothing heavier than NumPy is imported before a command needs it.
"""

from __future__ import annotations

from typing import Annotated

import typer

from oocdata import __version__
from oocdata.cli.cluster import dispatcher, worker
from oocdata.cli.demo import demo
from oocdata.cli.info import info

__all__ = ["app", "main"]

app = typer.Typer(
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 90},
)


def main() -> None:
    """Run the command line."""
    app(prog_name="oocdata")


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"oocdata {__version__}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def _oocdata(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Train TensorFlow/Keras models on arrays larger than memory.

    \b
    Examples:
      oocdata info ds.npy             what is in a file, and how it will be read
      oocdata info sim.h5 /u          one dataset of it
      oocdata demo                    the whole job on data that it makes
      oocdata demo sim.h5 --key /u    the same on your own file
      oocdata dispatcher              a cluster of readers: deals out the work
      oocdata worker                  and one of many that do it
    """  # noqa: D301  # \b keeps the lines that follow as they are
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


app.command(no_args_is_help=True)(info)
app.command()(demo)
app.command()(dispatcher)
app.command()(worker)
