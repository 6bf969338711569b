"""`oocdata dispatcher` and `oocdata worker`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from oocdata.cli.failures import errors
from oocdata.cli.options import Debug

__all__ = ["dispatcher", "worker"]

Port = Annotated[int, typer.Option(help="The port; 0: any that is free.", min=0, max=65535)]
Host = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="Listen for other machines too, which reach this one by that name. By default only "
        "this machine is answered.",
    ),
]


def dispatcher(
    port: Port = 5050,
    host: Host = None,
    journal: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Note there what is needed to go on after a restart."),
    ] = None,
    debug: Debug = False,
) -> None:
    """Deal out the batches of an epoch to workers (tf.data service).

    Prints its address once it listens, and runs until Ctrl-C or SIGTERM. Nobody is asked who they
    are: with --host, let only trusted machines reach the port.

    \b
    Examples:
      oocdata dispatcher
      oocdata dispatcher --port 5050 --host node0 --journal /var/lib/oocdata
    """  # noqa: D301
    with errors(debug):
        from oocdata.tools.cluster.servers import dispatch

        dispatch(port, host, journal, typer.echo)


def worker(
    dispatcher: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="Where the dispatcher listens.")
    ] = "localhost:5050",
    port: Port = 0,
    host: Host = None,
    allow: Annotated[
        list[str] | None,
        typer.Option(
            metavar="MODULE",
            help="Functions and classes of this module or package may be used; repeat it for more.",
        ),
    ] = None,
    wait: Annotated[
        float, typer.Option(metavar="SECONDS", help="How long to wait for the dispatcher.", min=0)
    ] = 60,
    debug: Debug = False,
) -> None:
    """Read batches for whoever trains, as the dispatcher deals them out (tf.data service).

    Opens the files itself, by the paths that they have where the training runs. Prints its address
    once it listens, and runs until Ctrl-C or SIGTERM.

    \b
    Examples:
      oocdata worker
      oocdata worker --dispatcher node0:5050 --host node1 --allow mypackage.functions
    """  # noqa: D301
    with errors(debug):
        from oocdata.tools.cluster.servers import work

        work(dispatcher, port, host, allow or [], wait, typer.echo)
