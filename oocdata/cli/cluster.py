"""`oocdata dispatcher` and `oocdata worker`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from oocdata.cli.command import command
from oocdata.cli.options import option

__all__ = ["dispatcher", "worker"]

_HOST = (
    "Listen for other machines too, which reach this one by that name. By default only this "
    "machine is answered."
)
_ALLOW = "Functions and classes of this module or package may be used; repeat it for more."
Port = Annotated[int, option("N", "The port; 0: any that is free.", min=0, max=65535)]
Host = Annotated[str | None, option("NAME", _HOST)]


@command
def dispatcher(
    port: Port = 5050,
    host: Host = None,
    journal: Annotated[
        Path | None, option("FOLDER", "Note there what is needed to go on after a restart.")
    ] = None,
) -> None:
    """Deal out the batches of an epoch to workers (tf.data service).

    Prints its address once it listens, and runs until Ctrl-C or SIGTERM. Nobody is asked who they
    are: with --host, let only trusted machines reach the port.

    \b
    Examples:
      oocdata dispatcher
      oocdata dispatcher --port 5050 --host node0 --journal /var/lib/oocdata
    """  # noqa: D301
    from oocdata.tools.servers import dispatch

    dispatch(port, host, journal, typer.echo)


@command
def worker(
    dispatcher: Annotated[
        str, option("HOST:PORT", "Where the dispatcher listens.")
    ] = "localhost:5050",
    port: Port = 0,
    host: Host = None,
    allow: Annotated[list[str] | None, option("MODULE", _ALLOW)] = None,
    wait: Annotated[float, option("SECONDS", "How long to wait for the dispatcher.", min=0)] = 60,
) -> None:
    """Read batches that a dispatcher deals out (tf.data service).

    Opens the files itself, by the paths that they have where the training runs. Prints its address
    once it listens, and runs until Ctrl-C or SIGTERM.

    \b
    Examples:
      oocdata worker
      oocdata worker --dispatcher node0:5050 --host node1 --allow mypackage.functions
    """  # noqa: D301
    from oocdata.tools.servers import work

    work(dispatcher, port, host, allow or [], wait, typer.echo)
