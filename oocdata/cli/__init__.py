"""The command line of oocdata: one module per command, and shared options.

Results go to standard output, errors (one paragraph each) and progress to standard error.
`oocdata --help` lists the exit codes. Nothing heavier than NumPy is imported before a command needs
it.
"""

from __future__ import annotations

from typing import Annotated

import typer

from oocdata import __version__
from oocdata.cli.bench import bench
from oocdata.cli.cache import cache
from oocdata.cli.check import check
from oocdata.cli.cluster import dispatcher, worker
from oocdata.cli.convert import convert
from oocdata.cli.demo import demo
from oocdata.cli.info import info
from oocdata.cli.preview import preview
from oocdata.cli.stats import stats

app = typer.Typer(
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 90},
)


def main() -> None:
    """Run the command line."""
    app(prog_name="oocdata")


def _version(requested: bool) -> None:
    if requested:
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
      oocdata info ds.npy             contents of a file, and how it is read
      oocdata info sim.h5::/u         one dataset of it; or: sim.h5 --key /u
      oocdata preview ds.npy          some rows as pictures
      oocdata stats part*.npy         range, mean, deviation; NaN, repeated rows
      oocdata check sim.h5            find damaged rows
      oocdata convert a.h5 b.zarr     another format, or chunks that read fast
      oocdata bench ds.npy            reading speed, and what to change
      oocdata demo                    train on generated data
      oocdata demo sim.h5::/u         the same on your own file
      oocdata dispatcher              cluster of readers: distribute the work
      oocdata worker                  cluster of readers: read batches
      oocdata cache                   show a cache folder, or clear it

    \b
    Exit codes:
      0    done
      1    failed: the message says why; --verbose shows the traceback
      2    wrong arguments
      3    done; found damage or a difference
      130  stopped by Ctrl-C
    """  # noqa: D301  # \b keeps the lines after it unwrapped
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


for function in (info, preview, stats, check, convert, bench):
    app.command(no_args_is_help=True)(function)
for function in (demo, dispatcher, worker, cache):
    app.command()(function)
