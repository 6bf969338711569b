"""`oocdata demo`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from oocdata.cli.command import command
from oocdata.cli.options import Json, Output, flag, option, print_json
from oocdata.errors import ArgumentError
from oocdata.tools.opening import Opening

__all__ = ["demo"]

_EPISODES = "Rows in each episode of your file, or 'files': no pair crosses them."


def _episodes(text: str) -> int | str:
    """Return a number of rows, or the word 'files'."""
    if text == "files":
        return text
    if text.isdecimal() and int(text) > 0:
        return int(text)
    raise typer.BadParameter(f"{text!r} is neither a number of rows nor 'files'.")


@command
def demo(
    array: Opening,
    files: Annotated[
        list[str] | None,
        typer.Argument(metavar="[FILE...]", help="Your own array; without it, data are made."),
    ] = None,
    episodes: Annotated[Any, option("N", _EPISODES, parser=_episodes)] = None,
    quick: Annotated[bool, flag("--quick", "Less data, half a minute.")] = False,
    keep: Annotated[
        Path | None, option("FOLDER", "Keep the files that are made, in this folder.")
    ] = None,
    output: Output = None,
    seed: Annotated[int, option("N", "Data, order and model depend on it.", min=0)] = 7,
    json: Json = False,
) -> None:
    """Train a next-frame model, and measure everything.

    Without FILE: writes clips of two bouncing handwritten digits as .npy, HDF5 and Zarr (1 GB of
    temporary files), checks every frame that comes back, reads and trains from each format on the
    CPU, in less than two minutes. With FILE: the same on your own array, in half a minute. Memory
    is measured, and more than the stated bound is an error.

    \b
    Examples:
      oocdata demo
      oocdata demo --quick --keep frames -o predictions.png
      oocdata demo sim.h5::/u
      oocdata demo run*.npy --episodes files -o run.png
    """  # noqa: D301
    own = bool(array.target)
    if not own and (array.given() or episodes is not None):
        raise ArgumentError("`files` must be given with options that open a file.")
    if own and keep is not None:
        raise ArgumentError("`keep` must be left out with `files`: no file is made from your own.")
    from oocdata.tools.demo import Plan, demo_on_digits, demo_on_file

    plan = Plan.quick(seed) if quick else Plan.full(seed)
    if own:
        found = demo_on_file(plan, array.view(), episodes, output, aside=json)
    else:
        found = demo_on_digits(plan, keep, output, aside=json)
    if json:
        print_json(found.to_json())
