"""Parse the address of a dispatcher, and check that it answers."""

from __future__ import annotations

import socket

from oocdata.errors import ArgumentError, ServiceError

_SECONDS_TO_ANSWER = 5


def split_address(service: str) -> tuple[str, int]:
    """Return host and port of ``"HOST:PORT"``; raise ArgumentError if it is malformed.

    Examples
    --------
    >>> split_address("localhost:5050"), split_address("grpc://[::1]:5050")
    (('localhost', 5050), ('::1', 5050))
    """
    if isinstance(service, str):
        host, colon, port = service.removeprefix("grpc://").rpartition(":")
        if host and colon and port.isdecimal() and 0 < int(port) < 2**16 and "/" not in host:
            return host.removeprefix("[").removesuffix("]"), int(port)
    raise ArgumentError(
        f"`service` must be the address of a dispatcher, 'HOST:PORT'; got {service!r}."
    )


def dispatcher_address(service: str) -> str:
    """Return the address of a dispatcher in TensorFlow's form; raise ServiceError if none answers.

    TensorFlow would wait an hour for a dispatcher that is not there.
    """
    host, port = split_address(service)
    try:
        socket.create_connection((host, port), _SECONDS_TO_ANSWER).close()
    except OSError as error:
        raise ServiceError(
            f"`service` must be a dispatcher that answers; {service!r} does not: {error}. Start "
            f"one: oocdata dispatcher --port {port}."
        ) from error
    return f"grpc://[{host}]:{port}" if ":" in host else f"grpc://{host}:{port}"
