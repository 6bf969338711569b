"""Define the arguments and options that several commands share, and parse them."""

from __future__ import annotations

import glob
import os
import re
import warnings
from collections.abc import Callable, Collection
from contextlib import suppress
from math import inf
from typing import Annotated, Any, Literal

import typer

from oocdata.errors import ArgumentError, MissingFileError
from oocdata.formats.opening import list_datasets
from oocdata.formats.patterns import natural_key
from oocdata.formats.pictures import Pictures
from oocdata.tools.opening import Opening


def option(
    metavar: str,
    text: str,
    *names: str,
    parser: Callable[[str], Any] | None = None,
    **more: Any,
) -> Any:
    """Return a Typer option with a value, named like its argument unless names are given.

    The `parser` gets only text: any other value is a default, or was parsed already.
    """
    if parser is not None:
        more["parser"] = lambda value: parser(value) if isinstance(value, str) else value
    return typer.Option(*names, metavar=metavar, help=text, **more)


def flag(name: str, text: str, *names: str) -> Any:
    """Return a Typer option without a value."""
    return typer.Option(name, *names, help=text)


Json = Annotated[bool, flag("--json", "Print JSON.")]
Quiet = Annotated[bool, flag("--quiet", "Show no progress.", "-q")]
Overwrite = Annotated[bool, flag("--overwrite", "Replace an existing file.", "-f")]


def numbers(
    example: str, *, least: float = -inf, count: Collection[int] = ()
) -> Callable[[str], Any]:
    """Return a parser of lists of numbers, none below `least`, of a length in `count` if given.

    It accepts only integers, unless the example has a decimal point.
    """

    def parse(text: str) -> Any:
        with suppress(ValueError):
            parsed = tuple(_number(part) for part in text.strip("()[] ,").split(","))
            types_match = "." in example or all(isinstance(number, int) for number in parsed)
            if types_match and min(parsed) >= least and (not count or len(parsed) in count):
                return parsed
        rule = "" if least == -inf else f", from {least} on"
        raise typer.BadParameter(f"{text!r} is not of the form {example}{rule}.")

    return parse


def _number(text: str) -> int | float:
    with suppress(ValueError):
        return int(text)
    return float(text)


def rows_of(text: str) -> slice:
    """Return a range of rows as a slice."""
    with suppress(ValueError):
        ends = [int(part) if part.strip() else None for part in text.split(":")]
        if 2 <= len(ends) <= 3 and ends[2:] != [0]:
            return slice(*ends)
    raise typer.BadParameter(f"{text!r} is no range of rows such as 100:200, :1000 or -50:.")


def axis_of(text: str) -> Any:
    """Return one or several axes, each by its number or the name of its dimension; or None."""
    if text.lower() == "none":  # a note that says axis=None says --axis None here
        return None
    parts = [part.strip() for part in text.split(",") if part.strip()] or [text]
    axes = tuple(int(part) if re.fullmatch(r"[+-]?\d+", part) else part for part in parts)
    return axes[0] if len(axes) == 1 else axes


def _keys(context: typer.Context, incomplete: str) -> list[str]:
    """Return the datasets of the file on the command line, to complete ``--key`` in a shell."""
    # While an option lacks its value, Typer leaves the files unparsed.
    files = context.params.get("files") or context.args
    path = os.path.expanduser(files[0]) if files else ""
    # A pipe might block for ever, and a URL is slow.
    if not (os.path.isfile(path) or os.path.isdir(path)):
        return []
    keys: list[str] = []
    with suppress(Exception), warnings.catch_warnings(action="ignore"):
        keys = [key for key in list_datasets(path) if key]
    if not incomplete.startswith("/"):
        keys = [key.removeprefix("/") for key in keys]
    return [key for key in keys if key.startswith(incomplete)]


FILES = (
    "A file, Zarr folder or URL, with its dataset as FILE::NAME. Several files, or a quoted glob, "
    "are one array, and so are the datasets of a quoted pattern: 'FILE::data/demo_*/u'."
)
_KEY = "The dataset in the file, e.g. /flow/u; or a quoted pattern of datasets, 'data/demo_*/u'."
_AXIS = (
    "The row axis: a number or a dimension's name; or several, outermost first: 0,1; or none: each "
    "file is a row."
)
_DTYPE = "The dtype of raw binary, e.g. '>f4', or of a .npy of raw bytes, e.g. bfloat16."
_SHAPE = "Raw binary: the shape in C order, e.g. 1000,64,64; one length may be -1."
_PAD = "Pad rows of different shapes with this number to the longest length of each axis."
_PICTURES = (
    "Resize pictures to a height and width, and convert them to 1, 3 or 4 channels if given: "
    "180,240 or 180,240,3."
)
_ABSENT = (
    "Absent chunks: raise an error, or read the fill value. By default an error in HDF5, and the "
    "fill value with a warning in Zarr."
)


def opening_of(
    files: Annotated[list[str], typer.Argument(metavar="FILE", help=FILES)],
    key: Annotated[str | None, option("NAME", _KEY, "--key", "-k", autocompletion=_keys)] = None,
    axis: Annotated[Any, option("AXIS", _AXIS, parser=axis_of)] = 0,
    dtype: Annotated[str | None, option("DTYPE", _DTYPE)] = None,
    shape: Annotated[Any, option("N,N,...", _SHAPE, parser=numbers("1000,64,64"))] = None,
    offset: Annotated[
        int, option("BYTES", "Raw binary: bytes to skip.", min=0, show_default=False)
    ] = 0,
    missing: Annotated[Literal["error", "fill"] | None, option("error|fill", _ABSENT)] = None,
    external: Annotated[bool, flag("--external", "Accept HDF5 data in other files.")] = False,
    field: Annotated[
        str | None, option("NAME", "The field of structured rows; a,b for a nested field.")
    ] = None,
    decode: Annotated[bool, flag("--decode", "Decode packed numbers as xarray does.")] = False,
    pad: Annotated[Any, option("NUMBER", _PAD, parser=_number)] = None,
    pictures: Annotated[
        Any, option("H,W", _PICTURES, parser=numbers("180,240,3", least=1, count=(2, 3)))
    ] = None,
    format: Annotated[  # noqa: A002  # the argument's name in Python
        Literal["text"] | None, option("text", "Read the file as lines of text.")
    ] = None,
) -> Opening:
    """Return the `Opening` that these options describe; see `oocdata.cli.command`."""
    pairs = [split_key(file) for file in files or ()]  # `oocdata demo` may have no files
    keys = {name for name in (key, *(name for _, name in pairs)) if name is not None}
    if len(keys) > 1:
        raise ArgumentError(f"`key` must be one dataset; got {', '.join(map(repr, sorted(keys)))}.")
    for path, name in pairs[1:]:
        if name is None and re.fullmatch(r"[\w/-]+", path) and not os.path.exists(path):
            raise MissingFileError(
                f"No such file. For a dataset: --key {path}, or {files[0]}::{path}.", path=path
            )
    target = _as_glob([path for path, _ in pairs])
    name = next(iter(keys), None)
    return Opening.of(
        target, name, axis=axis, dtype=dtype, shape=shape, offset=offset, missing=missing,
        external=external, field=tuple(field.split(",")) if field else (), decode=decode, pad=pad,
        format=format, pictures=pictures and Pictures(pictures[:2], channels=(*pictures, None)[2]),
    )  # fmt: skip


def _as_glob(paths: list[str]) -> str | list[str]:
    """Return the glob that a shell expanded to these files, or the files in natural order.

    A single file is returned as it is. Files are left unchanged if their names differ in more than
    numbers, or if they are not in the order of a shell.
    """
    if len(paths) == 1:
        return paths[0]
    differ_in_numbers = len({re.sub(r"\d+", "", path) for path in paths}) == 1
    in_shell_order = sorted(paths, key=len) == sorted(paths, key=lambda path: (len(path), path))
    if not (differ_in_numbers and in_shell_order):
        return paths
    folder, name = os.path.split(paths[0])
    name = re.sub(r"(\.[a-z]\w*$)|\d+", lambda found: found[1] or "*", name)  # .h5 stays
    pattern, paths = os.path.join(folder, name), sorted(paths, key=natural_key)
    return pattern if sorted(glob.glob(pattern), key=natural_key) == paths else paths


def split_key(text: str) -> tuple[str, str | None]:
    """Return the file and the dataset of ``FILE::NAME``."""
    file, _, key = text.rpartition("::")
    if not file or not key or "://" in key or os.path.exists(text):
        return text, None
    return file, key
