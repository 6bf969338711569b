"""`oocdata info`."""

from __future__ import annotations

from dataclasses import asdict

import typer

from oocdata.cli.failures import errors
from oocdata.cli.options import (
    Axis,
    Debug,
    Dtype,
    External,
    Json,
    Key,
    MissingChunks,
    Offset,
    Shape,
    Target,
    check_key,
    opening_of,
    print_json,
)

__all__ = ["info"]


def info(
    path: Target,
    key: Key = None,
    axis: Axis = 0,
    dtype: Dtype = None,
    shape: Shape = None,
    offset: Offset = 0,
    missing: MissingChunks = None,
    external: External = False,
    json: Json = False,
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
    opening = opening_of(axis, dtype, shape, offset, missing, external)
    with errors(debug):
        from oocdata.tools.info import contents
        from oocdata.tools.opening import Opening

        check_key(key)
        found = contents(Opening.of(path, key, **asdict(opening)))
        if json:
            print_json(found.to_json())
        elif found.datasets:
            typer.echo(str(found))
        if not found.datasets:
            typer.echo("oocdata: there is no dataset in the file.", err=True)
        if not found.described:
            raise typer.Exit(1)
