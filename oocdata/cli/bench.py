"""`oocdata bench`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

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

if TYPE_CHECKING:
    from oocdata.datasets.dataset import Dataset
    from oocdata.datasets.view import View

__all__ = ["bench"]


def bench(
    path: Target,
    key: Key = None,
    batch: Annotated[
        str | None, typer.Option(metavar="SIZES", help="Batch sizes, e.g. 32,256.")
    ] = None,
    windows: Annotated[
        str | None,
        typer.Option(metavar="N[,M]", help="Windows of N rows, and M that follow, as elements."),
    ] = None,
    next_frame: Annotated[
        bool, typer.Option("--next-frame", help="Pairs of a row and the next as elements.")
    ] = False,
    seconds: Annotated[float, typer.Option(help="About how long to measure.")] = 15.0,
    tf: Annotated[
        bool, typer.Option("--tf", help="to_tf as well; loads TensorFlow, some seconds more.")
    ] = False,
    cold: Annotated[
        bool,
        typer.Option(
            "--cold",
            help="Drop the file from the page cache before each epoch, and measure the disk.",
        ),
    ] = False,
    plot: Annotated[
        str | None, typer.Option(metavar="FILE", help="Draw it, too: .png, .svg or .pdf.")
    ] = None,
    axis: Axis = 0,
    dtype: Dtype = None,
    shape: Shape = None,
    offset: Offset = 0,
    missing: MissingChunks = None,
    external: External = False,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Measure how fast a file can be read, what limits it, and say what to change.

    Reads the file in sequence, fully shuffled and shuffled by blocks, in several batch sizes, in
    rounds that take turns; beside it, what its decoder allows alone, what copying in memory allows,
    and with --cold what the disk gives. Then what to change, from the figures.

    It takes about 15 seconds, however large the file, and writes nothing but the picture. Memory is
    bounded; the output says how much.

    \b
    Examples:
      oocdata bench ds.npy
      oocdata bench sim.h5 /flow/u --batch 32,128 --plot bench.png
      oocdata bench run.zarr temperature --windows 8,4 --cold
      oocdata bench ds.npy --next-frame --tf
      oocdata bench 'part*.npy' --seconds 60 --json
    """  # noqa: D301
    opening = opening_of(axis, dtype, shape, offset, missing, external)
    sizes = None if batch is None else _counts(batch, "--batch")
    lengths = None if windows is None else _counts(windows, "--windows")
    if lengths is not None and (len(lengths) > 2 or next_frame):
        raise typer.BadParameter(
            "give N or N,M; and --windows or --next-frame, not both.", param_hint="--windows"
        )
    if not 0 < seconds <= 86_400:
        raise typer.BadParameter("must be above 0, up to a day.", param_hint="--seconds")
    if plot is not None and not plot.lower().endswith((".png", ".svg", ".pdf")):
        raise typer.BadParameter(f"{plot!r} ends in none of .png, .svg, .pdf.", param_hint="--plot")
    if plot is not None and not os.access(Path(plot).absolute().parent, os.W_OK):
        raise typer.BadParameter(
            f"the folder of {plot!r} can't be written to.", param_hint="--plot"
        )
    with errors(debug):
        from oocdata.tools.bench import bench as measure

        if tf:
            from oocdata.tools.demo.model import import_tensorflow

            import_tensorflow("batches of to_tf are made")
        check_key(key)
        dataset = _dataset(opening.view(path, key), lengths, next_frame)
        found = measure(
            dataset,
            batch_sizes=sizes,
            seconds=seconds,
            to_tf=tf,
            cold=cold,
            progress=True,
        )
        if json:
            print_json(found.to_json())
        else:
            typer.echo(str(found))
        if plot is not None:  # after the figures: none are lost where it can't be written
            from oocdata.tools.bench.picture import draw

            draw(found, plot)
            if not json:
                typer.echo(f"\nThe picture is {plot}.")


def _counts(text: str, option: str) -> list[int]:
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() and int(part) > 0 for part in parts):
        raise typer.BadParameter(
            f"{text!r} is not a list of whole numbers above 0, such as 32,256.", param_hint=option
        )
    return [int(part) for part in parts]


def _dataset(view: View, lengths: list[int] | None, next_frame: bool) -> Dataset:
    if next_frame:
        return view.next_frame()
    return view if lengths is None else view.windows(*lengths)
