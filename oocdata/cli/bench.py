"""Define the command `oocdata bench`."""

from __future__ import annotations

from typing import Annotated, Any

from oocdata.cli.command import command, print_result
from oocdata.cli.options import Json, Quiet, flag, numbers, option
from oocdata.errors import ArgumentError
from oocdata.tools.opening import Opening

_WINDOWS = "Elements are windows of N rows, and of the M rows that follow."
_LENGTHS = numbers("8,4", least=1, count=(1, 2))
_COLD = "Drop the file from the page cache before each epoch, and measure the disk."


@command
def bench(
    array: Opening,
    windows: Annotated[Any, option("N[,M]", _WINDOWS, parser=_LENGTHS)] = None,
    next_frame: Annotated[
        bool, flag("--next-frame", "Elements are pairs of a row and the next row.")
    ] = False,
    seconds: Annotated[float, option("S", "About how long to measure.")] = 15.0,
    to_tf: Annotated[
        bool, flag("--to-tf", "Measure to_tf too; loading TensorFlow takes seconds.")
    ] = False,
    cold: Annotated[bool, flag("--cold", _COLD)] = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Measure how fast a file can be read, and suggest changes.

    Reads the file in sequence, fully shuffled and shuffled by blocks, in batches of 32 and 256, in
    interleaved rounds. Also measures the limits: its decoder alone, and with --cold the disk. Then
    suggests changes, based on the figures.

    Takes about 15 seconds, however large the file, and writes nothing. Memory is bounded; the
    output states the bound.

    \b
    Examples:
      oocdata bench ds.npy
      oocdata bench sim.h5::/flow/u
      oocdata bench run.zarr -k temperature --windows 8,4 --cold
      oocdata bench ds.npy --next-frame --to-tf
      oocdata bench part*.npy --seconds 60 --json
    """  # noqa: D301
    if windows is not None and next_frame:
        raise ArgumentError("`windows` and `next_frame` must not be given together.")
    from oocdata.tools.bench import bench as measure

    if to_tf:
        from oocdata.tools.libraries import import_tensorflow

        import_tensorflow("batches of to_tf are made")
    view = array.view()
    dataset = view.next_frame() if next_frame else view.windows(*windows) if windows else view
    found = measure(
        dataset,
        seconds=seconds,
        to_tf=to_tf,
        cold=cold,
        progress=not quiet,
    )
    print_result(found, json)
