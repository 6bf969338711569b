"""`oocdata demo`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from oocdata.cli.completion import keys
from oocdata.cli.failures import errors
from oocdata.cli.options import (
    Axis,
    Debug,
    Dtype,
    External,
    Json,
    MissingChunks,
    Offset,
    Shape,
    opening_of,
    print_json,
)

__all__ = ["demo"]


def demo(
    path: Annotated[
        str | None,
        typer.Argument(metavar="[PATH]", help="Your own file; without it, data are made."),
    ] = None,
    key: Annotated[
        str | None, typer.Option(help="The dataset inside your file.", autocompletion=keys)
    ] = None,
    axis: Axis = 0,
    episodes: Annotated[
        str | None,
        typer.Option(help="Rows in each episode of your file, or 'files': no pair crosses them."),
    ] = None,
    dtype: Dtype = None,
    shape: Shape = None,
    offset: Offset = 0,
    missing: MissingChunks = None,
    external: External = False,
    quick: Annotated[bool, typer.Option("--quick", help="Less data, half a minute.")] = False,
    keep: Annotated[
        Path | None, typer.Option(help="Keep the files that are made, in this folder.")
    ] = None,
    output: Annotated[
        Path | None, typer.Option(help="A picture of predictions: a .png, .pdf or .svg.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Data, order and model depend on it.", min=0)] = 7,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Train a next-frame model, and measure everything.

    Without PATH: writes clips of two bouncing handwritten digits as .npy, HDF5 and Zarr (1 GB of
    temporary files), checks every frame that comes back, reads and trains from each format on the
    CPU, in less than two minutes. With PATH: the same on your own array, in half a minute. Memory
    is measured, and more than the stated bound is an error.

    \b
    Examples:
      oocdata demo
      oocdata demo --quick --keep frames --output predictions.png
      oocdata demo sim.h5 --key /u
      oocdata demo 'run*.npy' --episodes files --output run.png
    """  # noqa: D301
    opening = opening_of(axis, dtype, shape, offset, missing, external)
    if path is None and (key is not None or episodes is not None or opening != type(opening)()):
        raise typer.BadParameter("options that open a file need the file.", param_hint="PATH")
    if path is not None and keep is not None:
        raise typer.BadParameter("no file is made from your own.", param_hint="--keep")
    lengths = _episodes(episodes)
    with errors(debug):
        from oocdata.tools.demo import Plan, demo_on_digits, demo_on_file

        plan = Plan.quick(seed) if quick else Plan.full(seed)
        if path is None:
            found = demo_on_digits(plan, keep, output, aside=json)
        else:
            found = demo_on_file(plan, opening.view(path, key), lengths, output, aside=json)
        if json:
            print_json(found.to_json())


def _episodes(text: str | None) -> int | str | None:
    if text is None or text == "files":
        return text
    if text.isdecimal() and int(text) > 0:
        return int(text)
    raise typer.BadParameter(
        f"{text!r} is neither a number of rows nor 'files'.", param_hint="--episodes"
    )
