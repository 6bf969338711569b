"""Carry packets between two TUN devices, late and at a rate: the wire of ``servers.link``.

Run as a script of the standard library alone, with the descriptors of both devices. It ends with
its standard input.
"""

from __future__ import annotations

import fcntl
import os
import select
import struct
import sys
import time
from collections import deque

__all__ = ["open_device"]

# From linux/if_tun.h. With these the kernel hands over up to 64 KB at once that it would cut into
# packets of the device's size only on real hardware; its congestion control still counts those.
TUNSETIFF = 0x400454CA
TUNSETOFFLOAD = 0x400454D0
IFF_TUN, IFF_NO_PI, IFF_VNET_HDR = 0x0001, 0x1000, 0x4000
TUN_F_CSUM, TUN_F_TSO4, TUN_F_TSO6 = 0x01, 0x02, 0x04
HEADER = 10  # bytes of struct virtio_net_hdr
LONGEST = HEADER + (1 << 16)


def open_device(name: str) -> int:
    """Make a TUN device, and return a descriptor that it lives as long as."""
    descriptor = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    try:
        flags = IFF_TUN | IFF_NO_PI | IFF_VNET_HDR
        fcntl.ioctl(descriptor, TUNSETIFF, struct.pack("16sH22x", name.encode(), flags))
        fcntl.ioctl(descriptor, TUNSETOFFLOAD, TUN_F_CSUM | TUN_F_TSO4 | TUN_F_TSO6)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


class Direction:
    """Packets from one device to the other: due when a wire of the rate would have brought them.

    Nothing is lost here: as many packets wait as the senders' windows allow.
    """

    def __init__(self, source: int, target: int, delay: float, rate: float) -> None:
        self._source, self._target = source, target
        self._delay, self._rate = delay, rate  # seconds, bytes per second
        self._free = 0.0  # when the wire has sent what it was given
        self._waiting: deque[tuple[float, bytes]] = deque()

    def take(self) -> None:
        """Take the packets that have come to the source."""
        while True:
            try:
                packet = os.read(self._source, LONGEST)
            except BlockingIOError:
                return
            now = time.monotonic()
            self._free = max(now, self._free) + (len(packet) - HEADER) / self._rate
            self._waiting.append((self._free + self._delay, packet))

    def give(self) -> float | None:
        """Give the target the packets that are due; return when the next one will be."""
        while self._waiting:
            due, packet = self._waiting[0]
            if due > time.monotonic():
                return due
            os.write(self._target, packet)
            self._waiting.popleft()
        return None


def carry(one: int, other: int, delay: float, rate: float) -> None:
    """Carry packets both ways until standard input ends."""
    ways = {one: Direction(one, other, delay, rate), other: Direction(other, one, delay, rate)}
    while True:
        times = [due for way in ways.values() if (due := way.give()) is not None]
        wait = max(0.0, min(times) - time.monotonic()) if times else None
        # Microseconds, where epoll rounds up to milliseconds.
        ready, _, _ = select.select([0, *ways], [], [], wait)
        if 0 in ready:
            return
        for device in ready:
            ways[device].take()


if __name__ == "__main__":
    os.nice(-10)  # a wire does not wait for the programs that it connects
    carry(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]), float(sys.argv[4]))
