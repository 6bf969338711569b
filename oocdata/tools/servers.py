"""Run the servers of a cluster of readers: a dispatcher assigns the runs of an epoch to workers.

A server runs until Ctrl-C or SIGTERM, and prints its address. It accepts connections
from this machine only, unless `host` gives the name by which other machines reach it. Port 0 means
any free port. A `ServiceError` is raised if the port is taken, or if connections from other
machines can't be refused.
"""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import NoReturn

from oocdata.errors import ArgumentError, ServiceError
from oocdata.frontends.address import dispatcher_address, split_address
from oocdata.tools.libraries import import_tensorflow

_UNUSED_SECONDS = 120
"""An epoch without a trainer for this long is dropped, with the batches that workers made for it.
All trainers that share it must have begun by then."""

_CHECK_SECONDS = 10

_SIGNALS = (signal.SIGINT, signal.SIGTERM)

LOOPBACK = "localhost"


def dispatch(port: int, host: str | None, journal: Path | None) -> NoReturn:
    """Run a dispatcher; with a folder for its `journal`, a restart resumes its state."""
    own_port = free_port(port)
    service = import_tensorflow("the cluster works").data.experimental.service
    end = end_event()
    server = service.DispatchServer(
        service.DispatcherConfig(
            port=own_port,
            work_dir=None if journal is None else str(journal),
            fault_tolerant_mode=journal is not None,
            job_gc_check_interval_ms=1000 * _CHECK_SECONDS,
            job_gc_timeout_ms=1000 * _UNUSED_SECONDS,
        )
    )
    _keep(server, end, own_port, host, "oocdata dispatcher listens on {}")


def work(
    dispatcher: str, port: int, host: str | None, allow: Sequence[str], patience: float
) -> NoReturn:
    """Run a worker for the dispatcher at ``"HOST:PORT"``, waiting up to `patience` seconds for it.

    Functions are imported only from the modules and packages in `allow`.
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
            address = dispatcher_address(dispatcher)
            break
        except ServiceError:
            if time.monotonic() >= until:
                raise
        time.sleep(0.2)
    own_port = free_port(port)
    service = import_tensorflow("the cluster works").data.experimental.service
    from oocdata.frontends.serving import serve

    server = service.WorkerServer(
        service.WorkerConfig(
            dispatcher_address=address,
            worker_address=f"{host or LOOPBACK}:%port%",
            port=own_port,
            heartbeat_interval_ms=1000,
        ),
        start=False,
    )
    serve(allow)
    # `start` blocks until the dispatcher answers, and no Python signal handler runs meanwhile, so
    # signals get their default action: they end the process.
    for number in _SIGNALS:
        signal.signal(number, signal.SIG_DFL)
    server.start()
    end = end_event()
    text = f"oocdata worker listens on {{}}, for the dispatcher {address}"
    _keep(server, end, own_port, host, text)


def is_loopback(host: str) -> bool:
    """Return whether a host name or address is a loopback address."""
    return host in (LOOPBACK, "::1") or host.startswith("127.")


def free_port(port: int) -> int:
    """Return a port that no process listens on (TensorFlow would silently share a taken port)."""
    both = socket.has_dualstack_ipv6()
    family = socket.AF_INET6 if both else socket.AF_INET
    try:
        with socket.create_server(("", port), family=family, dualstack_ipv6=both) as probe:
            return int(probe.getsockname()[1])
    except OSError as error:
        raise ServiceError(
            f"`port` must be free; {port} is not: {os.strerror(error.errno or 0)}. Choose another "
            "one, or 0 for any that is free."
        ) from error


def only_loopback(port: int) -> None:
    """Refuse connections from other machines to a port that this process listens on.

    TensorFlow's servers listen on every interface, without an option. A socket bound to the
    loopback device (``SO_BINDTODEVICE``, socket(7)) refuses connections from other interfaces, as
    if nothing listened there. Raise `ServiceError` where that is not possible (not Linux, or
    before 5.7 without the privilege).
    """
    bound = 0
    try:
        for server in _sockets(port):
            if server.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
                server.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, b"lo\0")
                bound += 1
            elif not is_loopback(server.getpeername()[0].removeprefix("::ffff:")):
                server.shutdown(socket.SHUT_RDWR)  # connected before the socket was bound
    except (OSError, AttributeError) as error:
        raise ServiceError(f"{_NO_LOOPBACK}; {error}. {_HINT}") from error
    if not bound:
        raise ServiceError(f"{_NO_LOOPBACK}; none is found. {_HINT}")


_NO_LOOPBACK = "the server's socket must be bound to the loopback device"
_HINT = (
    "Where everybody who can reach this machine is trusted, listen on all interfaces: --host NAME."
)


def _sockets(port: int) -> Iterator[socket.socket]:
    """Yield this process's TCP sockets at a local port."""
    for number in os.listdir("/proc/self/fd"):
        try:
            descriptor = os.dup(int(number))
        except OSError:  # closed meanwhile
            continue
        try:
            found = socket.socket(fileno=descriptor)
        except OSError:  # not a socket
            os.close(descriptor)
            continue
        with found:
            is_tcp = found.family in (socket.AF_INET, socket.AF_INET6)
            if is_tcp and found.getsockname()[1] == port:
                yield found


def end_event() -> threading.Event:
    """Return an event that Ctrl-C and SIGTERM set from now on."""
    end = threading.Event()
    for number in _SIGNALS:
        signal.signal(number, lambda *_: end.set())
    return end


def _keep(server: object, end: threading.Event, port: int, host: str | None, text: str) -> NoReturn:
    """Print the text with the address; keep a server alive until the event is set, and exit."""
    if host is None:
        only_loopback(port)
    print(text.format(f"{host or LOOPBACK}:{port}"), flush=True)
    # The system may deliver the signal to another thread; Python's handler then runs when this
    # thread next executes bytecode, so it must wake from time to time.
    while not end.wait(0.2):
        pass
    # Exit at once: stopping TensorFlow's servers can take minutes if a peer has gone.
    os._exit(0)
