"""`oocdata convert`."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated

import typer

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
    Target,
    check_dtype,
    opening_of,
    print_json,
)
from oocdata.errors import ArgumentError

if TYPE_CHECKING:
    from oocdata.writers.codec import Shuffled

__all__ = ["convert"]

_UNITS = {"k": 10, "m": 20, "g": 30, "t": 40}


def convert(
    path: Target,
    destination: Annotated[
        str, typer.Argument(metavar="DST", help="What to write: .npy, .h5, .hdf5 or .zarr.")
    ],
    key: Annotated[str | None, typer.Option(help="The dataset inside PATH.")] = None,
    to_key: Annotated[
        str | None, typer.Option("--to-key", help="The array's name in DST (HDF5, Zarr group).")
    ] = None,
    chunks: Annotated[
        str | None, typer.Option(help="Rows in a chunk, or a length for each axis: 32,3,64,64.")
    ] = None,
    shard: Annotated[
        str | None,
        typer.Option(help="Zarr: rows in a file, or a length for each axis; 0: a file a chunk."),
    ] = None,
    codec: Annotated[
        str | None,
        typer.Option(
            metavar="NAME[:LEVEL]",
            help="none, gzip, zstd, blosc-lz4, blosc-zstd; HDF5 also lzf and lz4.",
        ),
    ] = None,
    shuffle: Annotated[
        str | None, typer.Option(help="Before compression: byte, bit or none.")
    ] = None,
    to_dtype: Annotated[
        str | None,
        typer.Option("--to-dtype", help="E.g. float32; numbers that don't fit are refused."),
    ] = None,
    rows: Annotated[
        str | None, typer.Option(metavar="A:B", help="Only these rows, as a slice in Python.")
    ] = None,
    memory: Annotated[str, typer.Option(help="For what is under way, e.g. 2G.")] = "512M",
    verify: Annotated[
        bool, typer.Option("--verify", help="Read everything back and compare every bit.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace the array if it exists.")] = False,
    resume: Annotated[
        bool, typer.Option("--resume/--anew", help="Go on with a run that was stopped, or not.")
    ] = True,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would be done, and why.")
    ] = False,
    axis: Axis = 0,
    dtype: Dtype = None,
    shape: Shape = None,
    offset: Offset = 0,
    missing: MissingChunks = None,
    external: External = False,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Write an array to another file, format or chunking.

    Chunks are whole rows by default, and a codec is used where it saves something; what is chosen
    is told, with the reason. PATH is left alone. DST has its name when it is complete, or not at
    all: until then it is made in DST.oocdata-partial, and the same command goes on with a run that
    was stopped. In Python: ooc.convert, and ooc.create for arrays that you make.

    Exit codes: 0 done; 1 an error; 2 called wrongly, or DST is there and may not be replaced; 3
    --verify found rows that differ, and nothing was written; 130 Ctrl-C.

    \b
    Examples:
      oocdata convert sim.h5 sim.zarr --key /flow/u --verify
      oocdata convert ds.npy ds.h5 --to-key /frames --codec none
      oocdata convert slow.h5 fast.h5 --chunks 32 --force
      oocdata convert 'part*.npy' all.zarr --chunks 16 --shard 1024
      oocdata convert run.zarr small.npy --rows :1000 --to-dtype float32
      oocdata convert sim.h5 sim.zarr --dry-run
    """  # noqa: D301
    opening = opening_of(axis, dtype, shape, offset, missing, external)
    chunk, shards = _lengths(chunks, "--chunks", 1), _lengths(shard, "--shard", 0)
    part = _rows(rows)
    nbytes = _nbytes(memory)
    shuffled = _shuffled(shuffle)
    check_dtype(to_dtype, "--to-dtype")
    with errors(debug):
        from oocdata.tools.convert.plan import plan_of
        from oocdata.tools.convert.text import outcome_text
        from oocdata.tools.convert.work import carry_out

        view = opening.view(path, key)
        view = view if part is None else view[part]
        view = view if to_dtype is None else view.astype(to_dtype)
        try:
            plan = plan_of(
                view,
                destination,
                to_key=to_key,
                chunks=chunk,
                shards=shards,
                codec=codec,
                shuffle=shuffled,
                memory=nbytes,
                verify=verify,
                overwrite=force,
            )
        except ArgumentError as error:
            raise typer.BadParameter(str(error)) from error
        if dry_run and json:
            print_json(plan.as_json())
        elif not json:
            typer.echo(str(plan))
        if dry_run:
            raise typer.Exit
        try:
            done = carry_out(plan, resume=resume, progress=True)
        except KeyboardInterrupt:
            if os.path.isdir(plan.placement.folder):
                typer.echo("oocdata: the same command goes on from here.", err=True)
            raise
        if json:
            print_json(done.as_json())
        else:
            typer.echo(outcome_text(done))
        if done.verified is False:
            raise typer.Exit(3)


def _lengths(text: str | None, option: str, least: int) -> int | tuple[int, ...] | None:
    if text is None:
        return None
    parts = [part.strip() for part in text.strip("()[] ,").split(",")]
    if not all(part.isdecimal() and int(part) >= least for part in parts):
        raise typer.BadParameter(
            f"{text!r} is neither a number of rows nor a length for each axis, such as 32,3,64,64.",
            param_hint=option,
        )
    lengths = tuple(int(part) for part in parts)
    return lengths[0] if len(lengths) == 1 else lengths


def _rows(text: str | None) -> slice | None:
    if text is None:
        return None
    try:
        first, last = (int(part) if part.strip() else None for part in text.split(":"))
    except ValueError:
        raise typer.BadParameter(
            f"{text!r} is not two row numbers with a colon, such as 100:200, :1000 or -50:.",
            param_hint="--rows",
        ) from None
    return slice(first, last)


def _nbytes(text: str) -> int:
    number, unit = text.strip().lower().removesuffix("b").removesuffix("i"), 0
    if number and number[-1] in _UNITS:
        unit = _UNITS[number[-1]]
        number = number[:-1]
    try:
        found = int(float(number) * 2**unit)
    except (ValueError, OverflowError):
        found = 0
    if found < 1 << 20:
        raise typer.BadParameter(
            f"{text!r} is no number of bytes from 1M on, such as 512M or 2G.",
            param_hint="--memory",
        )
    return found


def _shuffled(text: str | None) -> Shuffled | None:
    if text is None or text in ("none", "byte", "bit"):
        return text  # type: ignore[return-value]  # a Literal, by the test
    raise typer.BadParameter(f"{text!r} is not byte, bit or none.", param_hint="--shuffle")
