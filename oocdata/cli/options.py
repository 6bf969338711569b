"""Arguments and options that several commands take."""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from oocdata.cli.completion import keys, one_of
from oocdata.errors import ArgumentError
from oocdata.formats.opening import Axis as Axes
from oocdata.formats.opening import Missing

if TYPE_CHECKING:
    from oocdata.tools.info import Opening

__all__ = [
    "Axis",
    "Debug",
    "Dtype",
    "External",
    "Json",
    "Key",
    "MissingChunks",
    "Offset",
    "Shape",
    "Target",
    "check_dtype",
    "check_key",
    "opening_of",
    "print_json",
]

Target = Annotated[
    str, typer.Argument(metavar="PATH", help="A file, Zarr folder, URL, or a quoted glob.")
]
Key = Annotated[
    str | None,
    typer.Argument(metavar="[KEY]", help="The dataset inside the file.", autocompletion=keys),
]


def axis_of(text: str) -> int | str | tuple[int | str, ...]:
    """Return one or several axes: each a number, or the name of a dimension.

    Examples
    --------
    >>> axis_of("-1"), axis_of("time"), axis_of("0,time")
    (-1, 'time', (0, 'time'))
    """
    parts = [part.strip() for part in str(text).split(",") if part.strip()]  # a default is an int
    axes: list[int | str] = []
    for part in parts or [text]:
        try:
            axes.append(int(part))
        except ValueError:
            axes.append(part)
    return axes[0] if len(axes) == 1 else tuple(axes)


Axis = Annotated[
    Any,
    typer.Option(
        parser=axis_of,
        metavar="AXIS",
        help="The row axis: a number or a dimension's name; or several, outermost first: 0,1.",
    ),
]
Dtype = Annotated[str | None, typer.Option(help="Raw binary: the stored dtype, e.g. '>f4'.")]
Shape = Annotated[
    str | None,
    typer.Option(help="Raw binary: the shape in C order, e.g. 1000,64,64; one may be -1."),
]
Offset = Annotated[int, typer.Option(help="Raw binary: bytes to skip.", min=0)]
MissingChunks = Annotated[
    str | None,
    typer.Option(
        "--missing",
        help="Chunks that are absent: 'error', or 'fill' to accept them; else HDF5 refuses them, "
        "and Zarr tells of them.",
        autocompletion=one_of("error", "fill"),
    ),
]
External = Annotated[bool, typer.Option("--external", help="Accept HDF5 data in other files.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]


def opening_of(
    axis: Axes,
    dtype: str | None,
    shape: str | None,
    offset: int,
    missing: str | None,
    external: bool,
) -> Opening:
    """Check the options and return them as the arguments of `oocdata.open`.

    Raises
    ------
    typer.BadParameter
        If they don't go together or can't be read.

    Examples
    --------
    >>> opening_of(0, ">f4", "-1,64", 512, None, False).code("field.bin", None)
    "ooc.open('field.bin', dtype='>f4', shape=(-1, 64), offset=512)"
    """
    from oocdata.tools.info import Opening

    if missing not in (None, "error", "fill"):
        raise typer.BadParameter(
            f"{missing!r} is neither 'error' nor 'fill'.", param_hint="--missing"
        )
    lengths = None
    if shape is not None:
        try:
            lengths = tuple(int(part) for part in shape.strip("()[] ,").split(","))
        except ValueError:
            raise typer.BadParameter(
                f"{shape!r} is not a list of whole numbers such as 1000,64,64.",
                param_hint="--shape",
            ) from None
    check_dtype(dtype, "--dtype")
    if (dtype is None) != (lengths is None):
        raise typer.BadParameter(
            "--dtype and --shape must be given together.", param_hint="--dtype"
        )
    kept: Missing | None = None if missing is None else "fill" if missing == "fill" else "error"
    return Opening(axis, dtype, lengths, offset, kept, external)


def check_dtype(dtype: str | None, option: str) -> None:
    """Refuse what NumPy doesn't know as a dtype.

    Raises
    ------
    typer.BadParameter
    """
    import numpy as np

    try:
        if dtype is not None:
            np.dtype(dtype)
    except (TypeError, ValueError, SyntaxError):
        raise typer.BadParameter(
            f"{dtype!r} is not a NumPy dtype such as float32 or '>f4'.", param_hint=option
        ) from None


def check_key(key: str | None) -> None:
    """Refuse a second file in the place of a key: a shell has expanded a glob.

    Raises
    ------
    oocdata.errors.ArgumentError
    """
    if key is not None and not key.startswith("/") and Path(key).is_file():
        raise ArgumentError(
            f"`key` must name a dataset in the file; got {key!r}, which is a file. Quote a glob, "
            "so that the shell does not expand it: '*.npy'."
        )


def print_json(found: object) -> None:
    """Print what a command reports as one JSON object; a number that JSON has not is null.

    Examples
    --------
    >>> print_json({"mean": float("nan"), "rows": (1, 2)})
    {
      "mean": null,
      "rows": [
        1,
        2
      ]
    }
    """
    import json

    typer.echo(json.dumps(_finite(found), indent=2, allow_nan=False))


def _finite(found: object) -> object:
    if isinstance(found, float):
        return found if isfinite(found) else None
    if isinstance(found, Mapping):
        return {name: _finite(value) for name, value in found.items()}
    if isinstance(found, list | tuple):
        return [_finite(value) for value in found]
    return found
