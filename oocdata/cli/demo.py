"""Define the command `oocdata demo`."""

from __future__ import annotations

from typing import Annotated

from oocdata.cli.command import command, print_result
from oocdata.cli.options import Json, flag


@command
def demo(
    quick: Annotated[bool, flag("--quick", "Less data, half a minute.")] = False,
    json: Json = False,
) -> None:
    """Train a next-frame model, and measure speed, memory and loss.

    Writes clips of two moving handwritten digits as .npy, HDF5 and Zarr (1 GB of temporary files),
    and reads and trains from each format on the CPU, in less than two minutes. Exceeding the stated
    memory bound is an error. To measure your own files: oocdata bench.

    \b
    Examples:
      oocdata demo
      oocdata demo --quick
    """  # noqa: D301
    from rich.console import Console

    from oocdata.tools.demo import Plan
    from oocdata.tools.demo import demo as run

    found = run(Plan.quick() if quick else Plan(), Console(stderr=json, highlight=False))
    if json:
        print_result(found, json)
