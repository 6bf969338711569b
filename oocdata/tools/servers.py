"""The servers of a cluster of readers: a dispatcher deals out the runs of an epoch, workers read.

Each runs until the process is asked to end, prints its address by `say`, and is reached by this
machine alone unless a `host` says by which name others reach it. Port 0 is any that is free. A port
that is taken, and others that can't be kept out, are a `ServiceError`.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import NoReturn

from oocdata.errors import ArgumentError, ServiceError
from oocdata.frontends.address import reached, split_address
from oocdata.tools.libraries import import_tensorflow

__all__ = ["dispatch", "free_port", "is_loopback", "only_loopback", "work"]

_UNUSED_SECONDS = 120
"""After as long without a trainer an epoch is given up, with what workers keep ready for it. Who
shares it must have begun by then."""

_LOOK_SECONDS = 10

_SIGNALS = (signal.SIGINT, signal.SIGTERM)

LOOPBACK = "localhost"

Say = Callable[[str], None]


def dispatch(port: int, host: str | None, journal: Path | None, say: Say) -> NoReturn:
    """Run a dispatcher; with a folder for its `journal` it goes on after it was ended."""
    own = free_port(port)
    service = import_tensorflow("the cluster works").data.experimental.service
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
    _keep(server, asked, own, host, lambda at: say(f"oocdata dispatcher listens on {at}"))


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
                f"--allow must name modules that can be imported here; {name!r} can't: {error}. "
                "Install it, or put its folder on PYTHONPATH."
            ) from error
    if host is None and not is_loopback(split_address(dispatcher)[0]):
        raise ArgumentError(
            "--host must be the name by which others reach this machine, where the dispatcher is "
            f"on another one; got none, and the dispatcher {dispatcher!r}."
        )
    until = time.monotonic() + patience
    while True:  # the dispatcher may still be starting
        try:
            address = reached(dispatcher).removeprefix("grpc://")
            break
        except ServiceError:
            if time.monotonic() >= until:
                raise
        time.sleep(0.2)
    own = free_port(port)
    service = import_tensorflow("the cluster works").data.experimental.service
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
    # It asks for the dispatcher until that answers, and no handler in Python runs meanwhile: a
    # signal ends the process.
    for number in _SIGNALS:
        signal.signal(number, signal.SIG_DFL)
    server.start()
    asked = asked_to_end()
    text = f"oocdata worker listens on {{}}, for the dispatcher {address}"
    _keep(server, asked, own, host, lambda at: say(text.format(at)))


def is_loopback(host: str) -> bool:
    """Return whether a host's name or address is this machine's, reached by nobody else."""
    return host in (LOOPBACK, "::1") or host.startswith("127.")


def free_port(port: int) -> int:
    """Return a port that nobody listens on: TensorFlow would share it with whoever does."""
    family = socket.AF_INET6 if socket.has_dualstack_ipv6() else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        try:
            probe.bind(("", port))
            return int(probe.getsockname()[1])
        except OSError as error:
            raise ServiceError(
                f"`port` must be free; {port} is not: {error.strerror}. Choose another one, or 0 "
                "for any that is free."
            ) from error


def only_loopback(port: int) -> None:
    """Let nobody but this machine reach a port that this process listens on.

    TensorFlow's servers listen on every interface, and can't be told otherwise. A socket that is
    bound to the loopback device (``SO_BINDTODEVICE``, socket(7)) takes no connection that comes by
    another one: whoever tries is refused, as if nothing listened there. Where that can't be done
    (not Linux, or before 5.7 without the right to) it is a `ServiceError`.
    """
    bound = 0
    try:
        for server in _sockets(port):
            if server.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
                server.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, b"lo\0")
                bound += 1
            elif not is_loopback(server.getpeername()[0].removeprefix("::ffff:")):
                server.shutdown(socket.SHUT_RDWR)  # was quicker than this
    except (OSError, AttributeError) as error:
        raise ServiceError(f"{_NO_LOOPBACK}; {error}. {_HINT}") from error
    if not bound:
        raise ServiceError(f"{_NO_LOOPBACK}; none is found. {_HINT}")


_NO_LOOPBACK = "the server's socket must be bound to the loopback device"
_HINT = (
    "Where everybody who can reach this machine is trusted, listen on all interfaces: --host NAME."
)


def _sockets(port: int) -> Iterator[socket.socket]:
    """Yield this process's TCP sockets of a local port."""
    for number in os.listdir("/proc/self/fd"):
        try:
            own = os.dup(int(number))
        except OSError:  # gone
            continue
        try:
            held = socket.socket(fileno=own)
        except OSError:  # no socket
            os.close(own)
            continue
        with held:
            if held.family in (socket.AF_INET, socket.AF_INET6) and held.getsockname()[1] == port:
                yield held


def asked_to_end() -> threading.Event:
    """Return what is set when the process is asked to end, from now on: by Ctrl-C or SIGTERM."""
    asked = threading.Event()
    for number in _SIGNALS:
        signal.signal(number, lambda *_: asked.set())
    return asked


def _keep(
    server: object, asked: threading.Event, port: int, host: str | None, say: Say
) -> NoReturn:
    """Keep a server until the process is asked to end; then end it, with status 0."""
    if host is None:
        only_loopback(port)
    say(f"{host or LOOPBACK}:{port}")
    # Woken now and then: the system may give the signal to another thread, and Python's handler
    # then runs when this one next does something.
    while not asked.wait(0.2):
        pass
    # At once: to stop TensorFlow's servers can take minutes, if one asks another that has gone.
    sys.stdout.flush()
    os._exit(0)
