"""Define the command `oocdata info`."""

from __future__ import annotations

import typer

from oocdata.cli.command import command, print_result
from oocdata.cli.options import Json
from oocdata.tools.opening import Opening


@command
def info(array: Opening, json: Json = False) -> None:
    """Show the contents of a file, and how it will be read.

    Reads metadata only. Without a dataset's name, all datasets of the file are
    listed.

    \b
    Examples:
      oocdata info ds.npy
      oocdata info sim.h5
      oocdata info sim.h5::/flow/u
      oocdata info run.zarr --key temperature --axis 1
      oocdata info part*.npy
      oocdata info field.bin --dtype '>f4' --shape -1,64,64 --offset 512
      oocdata info ds.npy --json
    """  # noqa: D301
    from oocdata.tools.info import contents

    found = contents(array)
    if json or found.datasets:
        print_result(found, json)
    if not found.datasets:
        typer.echo("oocdata: there is no dataset in the file.", err=True)
    if not found.described:
        raise typer.Exit(1)
