"""`oocdata info`."""

from __future__ import annotations

from pathlib import Path

import typer

from oocdata.cli.command import command
from oocdata.cli.options import Json, as_opened, print_json
from oocdata.tools.opening import Opening

__all__ = ["info"]


@command
def info(array: Opening, json: Json = False) -> None:
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

    path = array.target if isinstance(array.target, str) else ""
    there = Path(path).expanduser().exists() or "://" in path
    if path and there and array.key is None and array.dtype is None:
        found = contents(path, as_opened(array))
    else:
        described = describe(array.target, array.key, as_opened(array))
        found = Contents(path or array.target[0], (described,))
    if json:
        print_json(text.as_json(found))
    else:
        text.show(found)
    if not found.datasets:
        typer.echo("oocdata: there is no dataset in the file.", err=True)
    if not any(isinstance(one, Description) for one in found.datasets):
        raise typer.Exit(1)
