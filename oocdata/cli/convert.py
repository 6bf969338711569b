"""Define the command `oocdata convert`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from oocdata.cli.command import command, print_result
from oocdata.cli.options import (
    FILES,
    Json,
    Overwrite,
    Quiet,
    flag,
    numbers,
    option,
    rows_of,
    split_key,
)
from oocdata.errors import ArgumentError, DamagedChunkError, UnsupportedDtypeError
from oocdata.tools.opening import Opening

_DST = (
    "The file to write: .npy, .h5, .hdf5 or .zarr, .zarr also at s3://, gs://, az://; DST::NAME "
    "for an array in it."
)
_CHUNKS = "Rows per chunk, or a length for each axis: 32,3,64,64."
_LENGTHS = numbers("32,3,64", least=1)
_CODEC = "none or gzip; Zarr also zstd, blosc-lz4, blosc-zstd."
_TO_DTYPE = "The dtype to write; numbers that don't fit are refused."


@command
def convert(
    array: Opening,
    destination: Annotated[str, typer.Argument(metavar="DST", help=_DST)],
    files: Annotated[list[str] | None, typer.Argument(metavar="FILE", help=FILES)] = None,
    chunks: Annotated[Any, option("N[,N,...]", _CHUNKS, parser=_LENGTHS)] = None,
    codec: Annotated[str | None, option("NAME", _CODEC)] = None,
    to_dtype: Annotated[str | None, option("DTYPE", _TO_DTYPE)] = None,
    rows: Annotated[
        Any, option("A:B", "Only these rows, as a slice in Python.", parser=rows_of)
    ] = None,
    verify: Annotated[bool, flag("--verify", "Read it back and compare every bit.")] = False,
    overwrite: Overwrite = False,
    dry_run: Annotated[bool, flag("--dry-run", "Only print what would be done, and why.")] = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Write an array to another file, format or chunking.

    Chunks are whole rows by default, in the format's default codec; the choices are printed. FILE
    is not changed. DST appears only when it is complete: until then it is made in
    DST.oocdata-partial, and the same command continues a run that was stopped. In Python:
    ooc.convert, and ooc.create for arrays that you compute.

    Exit code 3: --verify found rows that differ, and nothing was written.

    \b
    Examples:
      oocdata convert sim.h5::/flow/u sim.zarr --verify
      oocdata convert ds.npy ds.h5::/frames --codec none
      oocdata convert slow.h5 fast.h5 --chunks 32 -f
      oocdata convert part*.npy all.zarr --chunks 16
      oocdata convert run.zarr small.npy --rows :1000 --to-dtype float32
      oocdata convert sim.h5 sim.zarr --dry-run
      oocdata convert sim.h5::/u s3://bucket/sim.zarr --verify
    """  # noqa: D301
    from oocdata.tools.convert import carry_out
    from oocdata.tools.convert.planning import plan_of

    if not array.target:  # a single argument is the destination
        raise ArgumentError(
            f"`destination` must be given behind `files`; got {destination!r} alone."
        )
    path, name = split_key(destination)
    view = array.view()
    if rows is not None:
        view = view[rows]
        if not len(view):
            raise ArgumentError(f"`rows` must hold a row of the {len(array.view())} there are.")
    if to_dtype is not None:
        try:
            view = view.astype(to_dtype)
        except (ArgumentError, UnsupportedDtypeError) as error:
            # Here, --dtype is the dtype of raw binary.
            raise type(error)(str(error).replace("`dtype`", "`to_dtype`")) from None
    plan = plan_of(
        view,
        path,
        to_key=name,
        chunks=chunks,
        codec=codec,
        verify=verify,
        overwrite=overwrite,
    )
    if dry_run or not json:
        print_result(plan, json)
    if dry_run:
        return
    try:
        done = carry_out(plan, progress=not quiet)
    except DamagedChunkError as error:
        if error.path != plan.placement.path:  # a chunk of the source is damaged
            raise
        typer.echo(f"oocdata: {error}", err=True)
        raise typer.Exit(3) from None
    print_result(done if json else done.outcome, json)
