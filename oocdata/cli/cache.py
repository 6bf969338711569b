"""Define the command `oocdata cache`."""

from __future__ import annotations

from typing import Annotated

import typer

from oocdata.cli.command import command, print_result
from oocdata.cli.options import Json, flag

_FOLDER = "The folder; by default that of the environment variable OOCDATA_CACHE."


@command
def cache(
    folder: Annotated[str | None, typer.Argument(metavar="FOLDER", help=_FOLDER)] = None,
    clear: Annotated[bool, flag("--clear", "Delete everything in the cache.")] = False,
    json: Json = False,
) -> None:
    """Show a cache folder, or clear it.

    A cache folder holds bytes of objects that were fetched from stores and HTTP, and the elements
    of datasets that .cache(FOLDER) in Python wrote. Objects stay within a limit (in bytes, the
    environment variable OOCDATA_CACHE_BYTES): the least recently used are deleted first, except
    those in use, so a part of an array that exceeds the limit is kept. Datasets stay until they are
    cleared.

    Running processes are not disturbed: they continue to read their open files, and fetch missing
    bytes again.

    Exit code 3: a dataset was not deleted, because a process is writing it.

    \b
    Examples:
      oocdata cache
      oocdata cache ~/cache --clear
    """  # noqa: D301
    from oocdata.tools.cache import cache as inspect_cache

    contents = inspect_cache(folder, clear=clear)
    print_result(contents, json)
    if contents.in_use:
        raise typer.Exit(3)
