"""`oocdata cache`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from oocdata.cli.command import command
from oocdata.cli.options import Json, flag, nbytes_of, option, tell

__all__ = ["cache"]

_FOLDER = "The folder; by default that of the environment variable OOCDATA_CACHE."


@command
def cache(
    folder: Annotated[str | None, typer.Argument(metavar="FOLDER", help=_FOLDER)] = None,
    clear: Annotated[bool, flag("--clear", "Delete what is kept.")] = False,
    limit: Annotated[
        Any, option("SIZE", "Let objects take so much of the disk: 100G.", parser=nbytes_of)
    ] = None,
    show: Annotated[
        int, option("N", "How many objects, and datasets, to list.", "--show", "-n", min=0)
    ] = 20,
    json: Json = False,
) -> None:
    """Show what a cache folder holds, clear it, or set its limit.

    It holds what was fetched of objects in stores and behind HTTP, and the elements of datasets
    that .cache(FOLDER) in Python wrote. Objects stay within the limit: what was used longest ago
    goes first, but for what is in use: of an array that exceeds the limit, a part is kept.
    Datasets stay until they are cleared.

    Processes that run may go on: they read what they have open, and fetch again what they miss.

    Exit code 3: a dataset was left, because a process writes it.

    \b
    Examples:
      oocdata cache
      oocdata cache ~/cache --limit 100G
      oocdata cache ~/cache --clear
    """  # noqa: D301
    from oocdata.tools.cache import cache as found_in

    found = found_in(folder, clear=clear, limit=limit)
    tell(found if json else found.text(show), json)
    if found.in_use:
        raise typer.Exit(3)
