"""Define the commands `oocdata dispatcher` and `oocdata worker`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from oocdata.cli.command import command
from oocdata.cli.options import option

_HOST = (
    "Accept other machines too, which reach this one by that name. By default only this machine "
    "is accepted."
)
_ALLOW = "A module or package whose functions and classes may be used; may be repeated."
Port = Annotated[int, option("N", "The port; 0 means any free one.", min=0, max=65535)]
Host = Annotated[str | None, option("NAME", _HOST)]


@command
def dispatcher(
    port: Port = 5050,
    host: Host = None,
    journal: Annotated[
        Path | None, option("FOLDER", "Record the state here, to continue after a restart.")
    ] = None,
) -> None:
    """Distribute the batches of an epoch to workers (tf.data service).

    Prints its address once it listens, and runs until Ctrl-C or SIGTERM. There is no
    authentication: with --host, let only trusted machines reach the port.

    \b
    Examples:
      oocdata dispatcher
      oocdata dispatcher --port 5050 --host node0 --journal /var/lib/oocdata
    """  # noqa: D301
    from oocdata.tools.servers import dispatch

    dispatch(port, host, journal)


@command
def worker(
    dispatcher: Annotated[
        str, option("HOST:PORT", "The address of the dispatcher.")
    ] = "localhost:5050",
    port: Port = 0,
    host: Host = None,
    allow: Annotated[list[str] | None, option("MODULE", _ALLOW)] = None,
    wait: Annotated[float, option("SECONDS", "How long to wait for the dispatcher.", min=0)] = 60,
) -> None:
    """Read batches for a dispatcher (tf.data service).

    Opens the files itself, so they must have the same paths as on the training machine. Prints its
    address once it listens, and runs until Ctrl-C or SIGTERM.

    \b
    Examples:
      oocdata worker
      oocdata worker --dispatcher node0:5050 --host node1 --allow mypackage.functions
    """  # noqa: D301
    from oocdata.tools.servers import work

    work(dispatcher, port, host, allow or [], wait)
