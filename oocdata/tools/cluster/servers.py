"""The servers of a cluster of readers: a dispatcher deals out the runs of an epoch, workers read.

Each runs until the process is asked to end, prints its address by `say`, and is reached by this
machine alone unless a `host` says by which name others reach it. Port 0 is any that is free. A port
that is taken, and others that can't be kept out, are a `ServiceError`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import NoReturn

from oocdata.errors import ArgumentError, ServiceError
from oocdata.frontends.address import reached, split_address
from oocdata.tools.cluster.listening import (
    LOOPBACK,
    asked_to_end,
    free_port,
    is_loopback,
    keep,
    only_loopback,
    quiet_tensorflow,
)

__all__ = ["dispatch", "work"]

_UNUSED_SECONDS = 120
"""After as long without a trainer an epoch is given up, with what workers keep ready for it. Who
shares it must have begun by then."""

_LOOK_SECONDS = 10

Say = Callable[[str], None]


def dispatch(port: int, host: str | None, journal: Path | None, say: Say) -> NoReturn:
    """Run a dispatcher; with a folder for its `journal` it goes on after it was ended."""
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


def work(
    dispatcher: str, port: int, host: str | None, allow: Sequence[str], patience: float, say: Say
) -> NoReturn:
    """Run a worker for the dispatcher at ``"HOST:PORT"``, for which it waits `patience` seconds.

    Functions are imported from the modules and packages named by `allow` alone.
    """
    for name in allow:
        try:
            import_module(name)
        except ImportError as error:
            raise ArgumentError(
                f"`--allow` must name modules that can be imported here; {name!r} can't: {error}. "
                "Install it, or put its folder on PYTHONPATH."
            ) from error
    if host is None and not is_loopback(split_address(dispatcher)[0]):
        raise ArgumentError(
            "`--host` must be the name by which others reach this machine, where the dispatcher is "
            f"on another one; got none, and the dispatcher {dispatcher!r}."
        )
    address = _waited_for(dispatcher, patience)
    own = free_port(port)
    service = quiet_tensorflow().data.experimental.service
    from oocdata.frontends.serving import answer

    server = service.WorkerServer(
        service.WorkerConfig(
            dispatcher_address=address,
            worker_address=f"{host or LOOPBACK}:%port%",
            port=own,
            heartbeat_interval_ms=1000,
        ),
        start=False,
    )
    answer(allow)
    asked = asked_to_end()
    server.start()
    if host is None:
        only_loopback(own)
    say(f"oocdata worker listens on {host or LOOPBACK}:{own}, for the dispatcher {address}")
    keep(server, asked)


def _waited_for(dispatcher: str, patience: float) -> str:
    """Return the address of a dispatcher that may still be starting."""
    until = time.monotonic() + patience
    while True:
        try:
            return reached(dispatcher).removeprefix("grpc://")
        except ServiceError:
            if time.monotonic() >= until:
                raise
        time.sleep(0.2)
