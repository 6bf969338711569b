"""Parse the address of a dispatcher, and check that it answers."""

from __future__ import annotations

import re
import socket

from oocdata.errors import ArgumentError, ServiceError

_SECONDS_TO_ANSWER = 5


def split_address(service: str) -> tuple[str, int]:
    """Return host and port of ``"HOST:PORT"``; raise ArgumentError if it is malformed."""
    if isinstance(service, str):
        host, _, port = service.rpartition(":")
        if host and port.isdecimal() and 0 < int(port) < 2**16 and not set("/@") & set(host):
            return host.removeprefix("[").removesuffix("]"), int(port)
    is_safe = re.fullmatch(r"[\w.:\[\]-]*", str(service))  # a URL may hold a password
    got = repr(service) if is_safe else "other characters than those of an address"
    raise ArgumentError(f"`service` must be the address of a dispatcher, 'HOST:PORT'; got {got}.")


def dispatcher_address(service: str) -> str:
    """Return the ``"HOST:PORT"`` of a dispatcher; raise ServiceError if none answers.

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
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
