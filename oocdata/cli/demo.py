"""Define the command `oocdata demo`."""

from __future__ import annotations

from typing import Annotated

import typer

from oocdata.cli.command import command, print_result
from oocdata.cli.options import Json, flag
from oocdata.errors import ArgumentError
from oocdata.tools.opening import Opening


@command
def demo(
    array: Opening,
    files: Annotated[
        list[str] | None,
        typer.Argument(metavar="FILE", help="Your own array; by default data are generated."),
    ] = None,
    quick: Annotated[bool, flag("--quick", "Less data, half a minute.")] = False,
    json: Json = False,
) -> None:
    """Train a next-frame model, and measure speed, memory and loss.

    Without FILE, writes clips of two moving handwritten digits as .npy, HDF5 and Zarr (1 GB of
    temporary files), and reads and trains from each format on the CPU, in less than two minutes.
    With FILE, does the same on your own array, in half a minute. Exceeding the stated memory bound
    is an error.

    \b
    Examples:
      oocdata demo
      oocdata demo --quick
      oocdata demo sim.h5::/u
      oocdata demo runs.npy --axis 0,1
    """  # noqa: D301
    own = bool(array.target)
    if not own and array.keywords():
        raise ArgumentError("`files` must be given with options that open a file.")
    from rich.console import Console

    from oocdata.tools.demo import Plan, demo_on_digits, demo_on_file

    plan = Plan.quick() if quick else Plan()
    console = Console(stderr=json, highlight=False)
    found = demo_on_file(plan, console, array) if own else demo_on_digits(plan, console)
    if json:
        print_result(found, json)
