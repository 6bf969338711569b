"""Define the command `oocdata stats`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from oocdata.cli.command import command, print_result
from oocdata.cli.options import Json, Quiet, axis_of, numbers, option
from oocdata.tools.opening import Opening

_CHANNELS = "The axis of the channels: from 1, or its name; or 'none'."
_SPLIT = "Read the first part only: 0.6,0.2,0.2, or counts."


@command
def stats(
    array: Opening,
    split: Annotated[Any, option("SIZES", _SPLIT, parser=numbers("0.6,0.2,0.2"))] = None,
    channels: Annotated[Any, option("AXIS", _CHANNELS, parser=axis_of)] = "auto",
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Show range, mean, deviation per channel; NaN, repeated rows.

    Reads every row once, in a few blocks of memory, whatever their number. With --split, reads only
    the rows of the first part, as `.split` in Python does, so that nothing of the other parts leaks
    into the scaling.

    The channel axis is found by the names of axes in the file, then by their lengths; in a table
    each column is a channel. The output says which axis it is, and why. Axes are numbered with the
    rows first.

    \b
    Examples:
      oocdata stats ds.npy
      oocdata stats ds.npy --split 0.6,0.2,0.2
      oocdata stats sim.h5::/flow/u --channels 1
      oocdata stats run.zarr -k temperature --channels none
      oocdata stats part*.npy --json > stats.json
    """  # noqa: D301
    from oocdata.tools.stats import stats as stats_of

    view = array.view()
    part = view if split is None else view.split(*split)[0]
    found = stats_of(part, channels=channels, progress=not quiet)
    print_result(found, json, path=array.target, key=array.key, split=split)
    if split is not None and not json:
        sizes = ",".join(map(str, split))
        typer.echo(f"split: the first part of {sizes}; no row of the others was read.")
