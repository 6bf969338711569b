"""`oocdata preview`."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from oocdata.cli.completion import colormaps, layouts
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
from oocdata.errors import ArgumentError, EmptyError, PositionError

if TYPE_CHECKING:
    from oocdata.tools.preview import Preview

__all__ = ["preview"]

_PICTURES = (".png", ".gif", ".webp", ".jpg", ".jpeg", ".pdf", ".svg")
_FILM_FRAMES = 48
_OPTIONS = {"limits": "range"}
"""Arguments whose options have other names."""
_Number = TypeVar("_Number", int, float)


def preview(
    path: Target,
    key: Key = None,
    output: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="The picture: .png, .pdf, .svg, .jpg, .webp; of a film .gif, .webp. "
            "[default: oocdata-preview.png or .gif; none with --json]",
        ),
    ] = None,
    rows: Annotated[
        str | None,
        typer.Option(metavar="A:B", help="Rows to choose from, e.g. 100:200, or a list: 3,7,9."),
    ] = None,
    count: Annotated[
        int | None,
        typer.Option(
            help="How many to show, evenly spread; of a film, one after the other. Not with a list "
            "of rows, which are all shown.",
            min=1,
        ),
    ] = None,
    next_frame: Annotated[
        bool, typer.Option("--next-frame", help="Show pairs of rows, and their difference.")
    ] = False,
    horizon: Annotated[
        int | None, typer.Option(help="Rows from one of a pair to the other.", min=1)
    ] = None,
    layout: Annotated[
        str,
        typer.Option(
            metavar="LETTERS",
            help="The axes of a row: H (y), W (x), C (channel), D (depth), T (time); e.g. CHW.",
            autocompletion=layouts,
        ),
    ] = "auto",
    channel: Annotated[
        str | None, typer.Option(metavar="C", help="The channels to show, e.g. 0 or 2,1.")
    ] = None,
    limits: Annotated[
        str | None,
        typer.Option("--range", metavar="LOW,HIGH", help="The values that the colours span."),
    ] = None,
    percentile: Annotated[
        str,
        typer.Option(metavar="LOW,HIGH", help="They span these percentiles of the values shown."),
    ] = "1,99",
    colormap: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="A colormap of matplotlib, e.g. gray.",
            autocompletion=colormaps,
        ),
    ] = None,
    animate: Annotated[
        bool, typer.Option("--animate", help="A film of consecutive rows instead of a sheet.")
    ] = False,
    fps: Annotated[
        float, typer.Option(help="Frames per second of the film.", min=0.02, max=50)
    ] = 10,
    terminal: Annotated[
        bool,
        typer.Option("--terminal/--no-terminal", help="Show it here too, where that is possible."),
    ] = True,
    axis: Axis = 0,
    dtype: Dtype = None,
    shape: Shape = None,
    offset: Offset = 0,
    missing: MissingChunks = None,
    external: External = False,
    json: Json = False,
    debug: Debug = False,
) -> None:
    """Show rows of a file as pictures, with a histogram.

    Writes a contact sheet, or a film, and shows it in the terminal too. Rows are spread evenly
    over the file, and little of it is read. Which axis is which is told from names and lengths,
    and printed; --layout says it. The colours span the 1st to 99th percentile of what is shown,
    around 0 where both signs matter; NaN and infinity are magenta.

    \b
    Examples:
      oocdata preview ds.npy
      oocdata preview sim.h5 /flow/u --next-frame --output pairs.png
      oocdata preview ds.npy --rows 100:200 --count 20 --channel 0
      oocdata preview run.zarr t2m --layout HWC --range 250,310 --colormap coolwarm
      oocdata preview ds.npy --animate --rows 500: --count 60 --output film.webp
      oocdata preview ds.npy --json
    """  # noqa: D301
    opening = opening_of(axis, dtype, shape, offset, missing, external)
    if key is not None and Path(key).suffix.lower() in _PICTURES and not path.endswith(".npz"):
        raise typer.BadParameter(
            f"{key!r} stands where a dataset's name does. Name the picture by --output.",
            param_hint="KEY",
        )
    chosen = _rows(rows)
    channels = None if channel is None else _numbers(channel, "--channel", int)
    span = None if limits is None else _two(limits, "--range")
    between = _two(percentile, "--percentile")
    with errors(debug):
        from oocdata.tools.pictures.film import FILMS
        from oocdata.tools.pictures.panel import check_folder
        from oocdata.tools.preview import SHEETS
        from oocdata.tools.preview import preview as make

        check_key(key)
        written = output
        if written is None and not json:
            written = Path("oocdata-preview.gif" if animate else "oocdata-preview.png")
        if animate and count is None and not isinstance(chosen, list):
            count = _FILM_FRAMES
        with _rules_of_arguments(debug):
            if written is not None:
                check_folder(written.expanduser(), FILMS if animate else SHEETS)
        view = opening.view(path, key)
        with _rules_of_arguments(debug):
            made = make(
                view,
                rows=chosen,
                count=count,
                horizon=horizon or (1 if next_frame else None),
                consecutive=animate,
                layout=layout,
                channel=channels,
                limits=span,
                percentile=between,
                colormap=colormap,
            )
        if written is not None and animate:
            made.animate(written, fps)
        elif written is not None:
            made.save(written)
        if json:
            picture = None if written is None else str(written)
            print_json({**made.as_json(), "picture": picture})
            return
        if terminal:
            _show(made)
        _say(_with_options(str(made)))
        _say(f"{'written':<10} {written}")


@contextmanager
def _rules_of_arguments(debug: bool) -> Iterator[None]:
    """Make a wrong argument of the function a wrong option of the command."""
    try:
        yield
    except EmptyError:  # the file is as short as it is
        raise
    except (ArgumentError, PositionError) as error:
        if debug:
            raise
        raise typer.BadParameter(_with_options(str(error))) from error


def _with_options(text: str) -> str:
    """Return a text that names options instead of arguments.

    Examples
    --------
    >>> _with_options("`limits` must be two numbers")
    '--range must be two numbers'
    """
    return re.sub(r"`([a-z]+)`", lambda found: f"--{_OPTIONS.get(found[1], found[1])}", text)


def _say(text: str) -> None:
    """Print a text, with question marks for letters that the output can't hold."""
    encoding = sys.stdout.encoding or "utf-8"
    typer.echo(text.encode(encoding, "replace").decode(encoding))


def _show(made: Preview) -> None:
    from rich.console import Console

    from oocdata.tools.pictures.terminal import can_show, show

    console = Console(highlight=False)
    if can_show(console):
        show(made, console)


def _rows(text: str | None) -> slice | list[int] | None:
    if text is None:
        return None
    if ":" not in text:
        return _numbers(text, "--rows", int)
    parts = text.split(":")
    try:
        numbers = [int(part) if part.strip() else None for part in parts]
    except ValueError:
        numbers = []
    if not 2 <= len(numbers) <= 3 or numbers[2:] == [0]:
        raise typer.BadParameter(
            f"{text!r} is no range of rows such as 100:200.", param_hint="--rows"
        )
    return slice(*numbers)


def _numbers(text: str, option: str, kind: type[_Number]) -> list[_Number]:
    try:
        return [kind(part) for part in text.split(",")]
    except ValueError:
        words = "whole numbers" if kind is int else "numbers"
        raise typer.BadParameter(
            f"{text!r} is not a list of {words} such as 1,3.", param_hint=option
        ) from None


def _two(text: str, option: str) -> tuple[float, float]:
    numbers = _numbers(text, option, float)
    if len(numbers) != 2 or not numbers[0] < numbers[1]:
        raise typer.BadParameter(
            f"{text!r} must be two numbers, the lower one first.", param_hint=option
        )
    return numbers[0], numbers[1]
