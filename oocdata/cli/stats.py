"""`oocdata stats`."""

from __future__ import annotations

from typing import Annotated

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

__all__ = ["stats"]

Split = Annotated[
    str | None,
    typer.Option(metavar="SIZES", help="Read the first part only: 0.6,0.2,0.2, or counts."),
]
Channels = Annotated[
    str,
    typer.Option(metavar="AXIS", help="The axis of the channels: from 1, or its name; or 'none'."),
]
Duplicates = Annotated[
    bool, typer.Option("--duplicates/--no-duplicates", help="Look for rows that are the same.")
]


def stats(
    path: Target,
    key: Key = None,
    split: Split = None,
    channels: Channels = "auto",
    duplicates: Duplicates = True,
    axis: Axis = 0,
    dtype: Dtype = None,
    shape: Shape = None,
    offset: Offset = 0,
    missing: MissingChunks = None,
    external: External = False,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Show range, mean and deviation of an array, per channel; NaN, constant and repeated rows.

    Reads every row once, whatever their number, within a few blocks of memory. With --split, only
    the rows of the first part, as `.split` in Python takes them: what you scale by then knows
    nothing of the others.

    Channels are found by the file's names of axes, then by their lengths; the columns of a table
    have statistics each. The output says which, and why. Axes are those of the array with its rows
    first.

    Exit code: 0, whatever was found; 1 where it can't be read; 2 for a wrong call.

    \b
    Examples:
      oocdata stats ds.npy
      oocdata stats ds.npy --split 0.6,0.2,0.2
      oocdata stats sim.h5 /flow/u --channels 1
      oocdata stats run.zarr temperature --channels none --no-duplicates
      oocdata stats 'part*.npy' --json > stats.json
    """  # noqa: D301
    opening = opening_of(axis, dtype, shape, offset, missing, external)
    sizes = None if split is None else _sizes(split)
    chosen = _channels(channels)
    with errors(debug):
        from oocdata.tools.stats import stats as stats_of

        check_key(key)
        view = opening.view(path, key)
        parts = (view,) if sizes is None else view.split(*sizes)
        found = stats_of(parts[0], channels=chosen, duplicates=duplicates, progress=True)
        if json:
            print_json({"path": path, "key": key, "split": sizes, **found.to_json()})
        else:
            typer.echo(found)
            if sizes is not None:
                typer.echo(f"split: the first part of {split}; no row of the others was read.")


def _sizes(split: str) -> list[float]:
    try:
        return [
            float(part) if "." in part or "e" in part else int(part) for part in split.split(",")
        ]
    except ValueError:
        raise typer.BadParameter(
            f"{split!r} is not a list of fractions or counts such as 0.6,0.2,0.2.",
            param_hint="--split",
        ) from None


def _channels(channels: str) -> int | str | None:
    if channels == "none":
        return None
    return int(channels) if channels.lstrip("-").isdecimal() else channels
