"""Define the command `oocdata preview`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any

import typer

from oocdata.cli.command import command, print_result
from oocdata.cli.options import (
    Json,
    Overwrite,
    flag,
    numbers,
    option,
    rows_of,
)
from oocdata.errors import ArgumentError
from oocdata.tools.opening import Opening

_FILM_FRAMES = 48
_ROWS = "Rows to choose from, e.g. 100:200, or a list: 3,7,9."
_COUNT = (
    "How many rows to show, evenly spread, or consecutive in a film. Of a list of rows, all are "
    "shown."
)
_LAYOUT = "The axes of a row: H (y), W (x), C (channel), D (depth), T (time); e.g. CHW."


def _chosen(text: str) -> slice | list[int]:
    """Return a range of rows, or a list of them."""
    return rows_of(text) if ":" in text else list(numbers("3,7,9")(text))


@command
def preview(
    array: Opening,
    output: Annotated[Path | None, option("FILE", "Write a picture.", "--output", "-o")] = None,
    overwrite: Overwrite = False,
    rows: Annotated[Any, option("A:B", _ROWS, parser=_chosen)] = None,
    count: Annotated[int | None, option("N", _COUNT, "--count", "-n", min=1)] = None,
    next_frame: Annotated[
        bool, flag("--next-frame", "Show pairs of rows, and their difference.")
    ] = False,
    layout: Annotated[str, option("LETTERS", _LAYOUT)] = "auto",
    fps: Annotated[float, option("N", "Frames per second of the film.", min=0.02, max=50)] = 10,
    terminal: Annotated[
        bool, flag("--terminal/--no-terminal", "Show the picture here, if possible.")
    ] = True,
    json: Json = False,
) -> None:
    """Show rows of a file as pictures.

    Shows a contact sheet if the terminal supports pictures, and writes it if --output names a
    file: .png, .jpg, .pdf or .svg; .gif or .webp is a film of consecutive rows. Reads little of
    the file. The meaning of axes is derived from their names and lengths, and printed; --layout
    overrides it. The colours span the 1st to 99th percentile of the shown values, and are centred
    on 0 where both signs matter; NaN and infinity are magenta. In a table each column is a curve
    over the rows.

    \b
    Examples:
      oocdata preview ds.npy
      oocdata preview sim.h5::/flow/u --next-frame -o pairs.png
      oocdata preview ds.npy --rows 100:200 -n 20 -o rows.png
      oocdata preview run.zarr -k t2m --layout HWC -o t2m.pdf
      oocdata preview ds.npy --rows 500: -n 60 -o film.gif
      oocdata preview ds.npy --json
    """  # noqa: D301
    from oocdata.tools.preview import preview as make
    from oocdata.tools.preview.sheet import FILMS, can_show, check_picture, show

    is_film = output is not None and output.suffix.lower() in FILMS
    if output is not None:
        check_picture(output)
        if os.path.lexists(output.expanduser()) and not overwrite:
            raise ArgumentError(
                f"`output` must not exist yet; '{output}' does. Choose another name, or allow it "
                "to be replaced: `overwrite`."
            )
    dataset = array.view().next_frame() if next_frame else array.dataset()
    if rows is not None:
        dataset = dataset[rows]
        if not len(dataset):
            raise ArgumentError("`rows` must hold a row; it holds none of those in the file.")
    if isinstance(rows, list):
        count = len(rows)
    elif is_film:  # of consecutive rows
        count = count or _FILM_FRAMES
        dataset = dataset[:count]
    made = make(dataset, count=count, layout=layout)
    if output is not None:
        made.save(output, fps=fps)
    if json:
        print_result(made, json, picture=None if output is None else str(output))
        return
    shown = False
    if terminal:
        from rich.console import Console

        console = Console(highlight=False)
        shown = can_show(console)
        if shown:
            show(made, console)
    print_result(made, json)
    if output is not None:
        typer.echo(f"{'written':<10} {output}")
    elif not shown:
        typer.echo(f"{'picture':<10} none: -o FILE.png writes one")
