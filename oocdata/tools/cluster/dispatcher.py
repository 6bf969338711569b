"""The dispatcher of a cluster of readers: deals out the runs of an epoch, and reads nothing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from oocdata.tools.cluster.listening import (
    LOOPBACK,
    asked_to_end,
    free_port,
    keep,
    only_loopback,
    quiet_tensorflow,
)

__all__ = ["dispatch"]

_UNUSED_SECONDS = 120
"""After as long without a trainer an epoch is given up, with what workers keep ready for it. Who
shares it must have begun by then."""

_LOOK_SECONDS = 10


def dispatch(
    port: int, host: str | None, journal: Path | None, say: Callable[[str], None]
) -> NoReturn:
    """Run a dispatcher until the process is asked to end.

    Parameters
    ----------
    port : int
        0: any that is free.
    host : str or None
        The name by which other machines reach this one; None: they can't.
    journal : Path or None
        A folder for what a dispatcher must know to go on after it was ended; None: it forgets.
    say : callable
        Gets what to print.

    Raises
    ------
    oocdata.errors.ServiceError
        If the port is taken, or others can't be kept out.
    """
    own = free_port(port)
    service = quiet_tensorflow().data.experimental.service
    asked = asked_to_end()
    server = service.DispatchServer(
        service.DispatcherConfig(
            port=own,
            work_dir=None if journal is None else str(journal),
            fault_tolerant_mode=journal is not None,
            job_gc_check_interval_ms=1000 * _LOOK_SECONDS,
            job_gc_timeout_ms=1000 * _UNUSED_SECONDS,
        )
    )
    if host is None:
        only_loopback(own)
    say(f"oocdata dispatcher listens on {host or LOOPBACK}:{own}")
    keep(server, asked)
