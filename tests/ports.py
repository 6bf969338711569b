"""Ports for servers that tests start in other processes."""

from __future__ import annotations

import os
import socket


def lasting_ports(number: int) -> list[int]:
    """Return free ports below those that the system hands out.

    Any other process may be handed one of those before the server listens. And whoever tries to
    connect to one while nobody listens may be given that very port for his own end, and then talks
    to himself: the server can't come back.
    """
    found: list[int] = []
    for port in range(20_000 + os.getpid() * 10 % 10_000, 32_000):
        with socket.socket() as probe:
            try:
                probe.bind(("", port))
            except OSError:
                continue
            found.append(port)
        if len(found) == number:
            return found
    raise AssertionError("no port is free")
