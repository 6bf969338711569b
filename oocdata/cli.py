"""The command `oocdata`: what is in a file, and a demonstration on it.

Every error is one paragraph on standard error; the exit code is 1, or 2 where the command was
called wrongly. Nothing heavier than NumPy is imported before a command needs it.
"""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from oocdata import __version__
from oocdata.errors import (
    ArgumentError,
    ExternalDataError,
    MissingChunkError,
    OocdataError,
    SeveralDatasetsError,
    UnknownFormatError,
)
from oocdata.sources.opening import Missing

if TYPE_CHECKING:
    from oocdata.tools.info import Opening

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


Axis = Annotated[int, typer.Option(help="The row axis.")]
Dtype = Annotated[str | None, typer.Option(help="Raw binary: the stored dtype, e.g. '>f4'.")]
Shape = Annotated[
    str | None,
    typer.Option(help="Raw binary: the shape in C order, e.g. 1000,64,64; one may be -1."),
]
Offset = Annotated[int, typer.Option(help="Raw binary: bytes to skip.", min=0)]
MissingChunks = Annotated[
    str, typer.Option("--missing", help="Chunks never written: 'error', or 'fill' to accept them.")
]
External = Annotated[bool, typer.Option("--external", help="Accept HDF5 data in other files.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]


def _opening(
    axis: int, dtype: str | None, shape: str | None, offset: int, missing: str, external: bool
) -> Opening:
    """Check the options and return them as the arguments of `oocdata.open`."""
    import numpy as np

    from oocdata.tools.info import Opening

    if missing not in ("error", "fill"):
        raise typer.BadParameter(
            f"{missing!r} is neither 'error' nor 'fill'.", param_hint="--missing"
        )
    lengths = None
    if shape is not None:
        try:
            lengths = tuple(int(part) for part in shape.strip("()[] ,").split(","))
        except ValueError:
            raise typer.BadParameter(
                f"{shape!r} is not a list of whole numbers such as 1000,64,64.",
                param_hint="--shape",
            ) from None
    if dtype is not None:
        try:
            np.dtype(dtype)
        except (TypeError, ValueError, SyntaxError):
            raise typer.BadParameter(
                f"{dtype!r} is not a NumPy dtype such as float32 or '>f4'.", param_hint="--dtype"
            ) from None
    if (dtype is None) != (lengths is None):
        raise typer.BadParameter(
            "--dtype and --shape must be given together.", param_hint="--dtype"
        )
    kept: Missing = "fill" if missing == "fill" else "error"
    return Opening(axis, dtype, lengths, offset, kept, external)


@app.command(no_args_is_help=True)
def info(
    path: Annotated[
        str, typer.Argument(metavar="PATH", help="A file, Zarr folder, URL, or a quoted glob.")
    ],
    key: Annotated[
        str | None, typer.Argument(metavar="[KEY]", help="The dataset inside the file.")
    ] = None,
    axis: Axis = 0,
    dtype: Dtype = None,
    shape: Shape = None,
    offset: Offset = 0,
    missing: MissingChunks = "error",
    external: External = False,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    debug: Debug = False,
) -> None:
    """Show what is in a file and how it will be read.

    Reads metadata only. Without KEY, all datasets of the file are listed.

    \b
    Examples:
      oocdata info ds.npy
      oocdata info sim.h5
      oocdata info sim.h5 /flow/u
      oocdata info run.zarr temperature --axis 1
      oocdata info 'part*.npy'
      oocdata info field.bin --dtype '>f4' --shape -1,64,64 --offset 512
      oocdata info ds.npy --json
    """  # noqa: D301
    opening = _opening(axis, dtype, shape, offset, missing, external)
    with _errors(debug):
        from oocdata.tools import info_text
        from oocdata.tools.info import Contents, Description, contents, describe

        _check_key(key)
        if key is None and dtype is None and (Path(path).expanduser().exists() or "://" in path):
            found = contents(path, opening)
        else:
            found = Contents(path, (describe(path, key, opening),))
        if json:
            import json as format_json

            typer.echo(format_json.dumps(info_text.as_json(found), indent=2))
        else:
            info_text.show(found)
            if not any(isinstance(one, Description) for one in found.datasets):
                raise typer.Exit(1)


@app.command()
def demo(
    path: Annotated[
        str | None,
        typer.Argument(metavar="[PATH]", help="Your own file; without it, data are made."),
    ] = None,
    key: Annotated[str | None, typer.Option(help="The dataset inside your file.")] = None,
    axis: Axis = 0,
    episodes: Annotated[
        str | None,
        typer.Option(help="Rows in each episode of your file, or 'files': no pair crosses them."),
    ] = None,
    dtype: Dtype = None,
    shape: Shape = None,
    offset: Offset = 0,
    missing: MissingChunks = "error",
    external: External = False,
    quick: Annotated[bool, typer.Option("--quick", help="Less data, under a minute.")] = False,
    keep: Annotated[
        Path | None, typer.Option(help="Keep the files that are made, in this folder.")
    ] = None,
    output: Annotated[Path, typer.Option(help="The picture of predictions.")] = Path(
        "oocdata-demo.png"
    ),
    seed: Annotated[int, typer.Option(help="Data, order and model depend on it.", min=0)] = 7,
    debug: Debug = False,
) -> None:
    """Train a next-frame model, and measure everything.

    Without PATH: writes clips of two bouncing handwritten digits as .npy, HDF5 and Zarr (up to 2 GB
    of temporary files), checks every frame that comes back, reads and trains from each format on
    the CPU. With PATH: the same on your own array, for about a minute.

    \b
    Examples:
      oocdata demo
      oocdata demo --quick --keep frames
      oocdata demo sim.h5 --key /u
      oocdata demo 'run*.npy' --episodes files --output run.png
    """  # noqa: D301
    opening = _opening(axis, dtype, shape, offset, missing, external)
    if path is None and (key is not None or episodes is not None or opening != type(opening)()):
        raise typer.BadParameter("options that open a file need the file.", param_hint="PATH")
    if path is not None and keep is not None:
        raise typer.BadParameter("no file is made from your own.", param_hint="--keep")
    lengths = _episodes(episodes)
    with _errors(debug):
        from oocdata.tools.demo import Plan, demo_on_digits
        from oocdata.tools.demo_file import demo_on_file

        plan = Plan.quick(seed) if quick else Plan.full(seed)
        if path is None:
            demo_on_digits(plan, output, keep)
        else:
            demo_on_file(plan, output, path, key, opening, lengths)


Port = Annotated[int, typer.Option(help="The port; 0: any that is free.", min=0, max=65535)]
Host = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="Listen for other machines too, which reach this one by that name. By default only "
        "this machine is answered.",
    ),
]


@app.command()
def dispatcher(
    port: Port = 5050,
    host: Host = None,
    journal: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Note there what is needed to go on after a restart."),
    ] = None,
    debug: Debug = False,
) -> None:
    """Deal out the batches of an epoch to workers (tf.data service).

    Prints its address once it listens, and runs until Ctrl-C or SIGTERM. Nobody is asked who they
    are: with --host, let only trusted machines reach the port.

    \b
    Examples:
      oocdata dispatcher
      oocdata dispatcher --port 5050 --host node0 --journal /var/lib/oocdata
    """  # noqa: D301
    with _errors(debug):
        from oocdata.tools.dispatcher import dispatch

        dispatch(port, host, journal, typer.echo)


@app.command()
def worker(
    dispatcher: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="Where the dispatcher listens.")
    ] = "localhost:5050",
    port: Port = 0,
    host: Host = None,
    allow: Annotated[
        list[str] | None,
        typer.Option(
            metavar="MODULE",
            help="Functions and classes of this module or package may be used; repeat it for more.",
        ),
    ] = None,
    wait: Annotated[
        float, typer.Option(metavar="SECONDS", help="How long to wait for the dispatcher.", min=0)
    ] = 60,
    debug: Debug = False,
) -> None:
    """Read batches for whoever trains, as the dispatcher deals them out (tf.data service).

    Opens the files itself, by the paths that they have where the training runs. Prints its address
    once it listens, and runs until Ctrl-C or SIGTERM.

    \b
    Examples:
      oocdata worker
      oocdata worker --dispatcher node0:5050 --host node1 --allow mypackage.functions
    """  # noqa: D301
    with _errors(debug):
        from oocdata.tools.worker import work

        work(dispatcher, port, host, allow or [], wait, typer.echo)


def _episodes(text: str | None) -> int | str | None:
    if text is None or text == "files":
        return text
    if text.isdecimal() and int(text) > 0:
        return int(text)
    raise typer.BadParameter(
        f"{text!r} is neither a number of rows nor 'files'.", param_hint="--episodes"
    )


def _check_key(key: str | None) -> None:
    if key is not None and not key.startswith("/") and Path(key).is_file():
        raise ArgumentError(
            f"`key` must name a dataset in the file; got {key!r}, which is a file. Quote a glob, "
            "so that the shell does not expand it: oocdata info '*.npy'."
        )


@contextmanager
def _errors(debug: bool) -> Iterator[None]:
    """Print an error as one paragraph on standard error, and exit with code 1."""
    try:
        yield
    except (OocdataError, OSError, MemoryError) as error:
        if debug:
            raise
        message = str(error) or type(error).__name__
        _complain(f"{message} {_on_the_command_line(error)}")
        raise typer.Exit(1) from None
    except KeyboardInterrupt:
        if debug:
            raise
        _complain("stopped.")
        raise typer.Exit(130) from None
    except (typer.Exit, typer.Abort, typer.BadParameter):
        raise
    except Exception as error:
        if debug:
            raise
        _complain(
            f"unexpected {type(error).__name__}: {error}. This should not happen: run it again "
            "with --debug, and report what it shows."
        )
        raise typer.Exit(1) from None


def _complain(message: str) -> None:
    width = min(max(shutil.get_terminal_size().columns, 40), 100)
    text = textwrap.fill(
        " ".join(f"oocdata: {message}".split()),
        width,
        break_long_words=False,
        break_on_hyphens=False,
    )
    typer.echo(text, err=True)


def _on_the_command_line(error: BaseException) -> str:
    """Return the option that does what an error's hint says in Python."""
    if isinstance(error, MissingChunkError):
        return "Here: --missing fill."
    if isinstance(error, ExternalDataError):
        return "Here: --external."
    if isinstance(error, SeveralDatasetsError):
        return "Here: `oocdata info FILE KEY`, `oocdata demo FILE --key KEY`."
    if isinstance(error, UnknownFormatError) and "raw binary" in str(error):
        return "Here: --dtype and --shape."
    return ""
