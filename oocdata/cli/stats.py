"""`oocdata stats`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from oocdata.cli.command import command
from oocdata.cli.options import Json, Quiet, flag, numbers, option, tell
from oocdata.tools.opening import Opening

__all__ = ["stats"]

_SPLIT = "Read the first part only: 0.6,0.2,0.2, or counts."


def _channels(text: str) -> int | str | None:
    """Return the number or the name of an axis, None for 'none', or 'auto'."""
    if text == "none":
        return None
    return int(text) if text.lstrip("-").isdecimal() else text


@command
def stats(
    array: Opening,
    split: Annotated[Any, option("SIZES", _SPLIT, parser=numbers("0.6,0.2,0.2"))] = None,
    channels: Annotated[
        Any,
        option(
            "AXIS", "The axis of the channels: from 1, or its name; or 'none'.", parser=_channels
        ),
    ] = "auto",
    duplicates: Annotated[
        bool, flag("--duplicates/--no-duplicates", "Look for rows that are the same.")
    ] = True,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Show range, mean, deviation per channel; NaN, repeated rows.

    Reads every row once, whatever their number, within a few blocks of memory. With --split, only
    the rows of the first part, as `.split` in Python takes them: what you scale by then knows
    nothing of the others.

    Channels are found by the file's names of axes, then by their lengths; the columns of a table
    have statistics each. The output says which, and why. Axes are those of the array with its rows
    first.

    \b
    Examples:
      oocdata stats ds.npy
      oocdata stats ds.npy --split 0.6,0.2,0.2
      oocdata stats sim.h5::/flow/u --channels 1
      oocdata stats run.zarr -k temperature --channels none --no-duplicates
      oocdata stats part*.npy --json > stats.json
    """  # noqa: D301
    from oocdata.tools.stats import stats as stats_of

    view = array.view()
    part = view if split is None else view.split(*split)[0]
    found = stats_of(part, channels=channels, duplicates=duplicates, progress=not quiet)
    tell(found, json, path=array.target, key=array.key, split=split)
    if split is not None and not json:
        sizes = ",".join(map(str, split))
        typer.echo(f"split: the first part of {sizes}; no row of the others was read.")
