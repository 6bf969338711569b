"""`oocdata info`."""

from __future__ import annotations

from pathlib import Path

import typer

from oocdata.cli.command import command
from oocdata.cli.options import Given, Json, print_json

__all__ = ["info"]


@command
def info(array: Given, json: Json = False) -> None:
    """Show what is in a file and how it will be read.

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
    from oocdata.tools.info import Contents, Description, contents, describe, text

    path, one = array.files[0], len(array.files) == 1
    there = one and (Path(path).expanduser().exists() or "://" in path)
    if there and array.key is None and array.opening.dtype is None:
        found = contents(path, array.opening)
    else:
        found = Contents(path, (describe(array.target, array.key, array.opening),))
    if json:
        print_json(text.as_json(found))
    else:
        text.show(found)
    if not found.datasets:
        typer.echo("oocdata: there is no dataset in the file.", err=True)
    if not any(isinstance(one, Description) for one in found.datasets):
        raise typer.Exit(1)
