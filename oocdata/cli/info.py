"""`oocdata info`."""

from __future__ import annotations

from pathlib import Path

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
        from oocdata.tools.info import Contents, Description, contents, describe, text

        check_key(key)
        if key is None and dtype is None and (Path(path).expanduser().exists() or "://" in path):
            found = contents(path, opening)
        else:
            found = Contents(path, (describe(path, key, opening),))
        if json:
            print_json(text.as_json(found))
        else:
            text.show(found)
        if not found.datasets:
            typer.echo("oocdata: there is no dataset in the file.", err=True)
        if not any(isinstance(one, Description) for one in found.datasets):
            raise typer.Exit(1)
