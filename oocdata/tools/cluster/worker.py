"""A worker of a cluster of readers: reads what the dispatcher deals out to it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from importlib import import_module
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

__all__ = ["work"]


def work(
    dispatcher: str,
    port: int,
    host: str | None,
    allow: Sequence[str],
    patience: float,
    say: Callable[[str], None],
) -> NoReturn:
    """Run a worker until the process is asked to end.

    Parameters
    ----------
    dispatcher : str
        ``"HOST:PORT"``.
    port : int
        0: any that is free.
    host : str or None
        The name by which other machines reach this one; None: they can't.
    allow : sequence of str
        Modules and packages from which functions may be imported.
    patience : float
        Seconds to wait for the dispatcher.
    say : callable
        Gets what to print.

    Raises
    ------
    oocdata.errors.ArgumentError
        If a module can't be imported, or others could not reach the worker.
    oocdata.errors.ServiceError
        If the dispatcher does not answer, the port is taken, or others can't be kept out.
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
    address = _waited_for(lambda: reached(dispatcher), patience).removeprefix("grpc://")
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


def _waited_for(reached: Callable[[], str], patience: float) -> str:
    """Return the address of a dispatcher that may still be starting."""
    until = time.monotonic() + patience
    while True:
        try:
            return reached()
        except ServiceError:
            if time.monotonic() >= until:
                raise
        time.sleep(0.2)
