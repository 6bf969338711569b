"""What reading batches asks of stores, and how long the reader waits for it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from oocdata.advice import size
from oocdata.tools.profile.pacing import Clock, Measure

__all__ = ["LinkUse", "LinkWatch"]

_LIMIT = 0.5
"""Share of the time waited from which on the link is the limit."""


@dataclass(frozen=True, slots=True)
class LinkUse:
    """What went over the link to stores while batches were read.

    Examples
    --------
    >>> print(LinkUse(requests=200, nbytes=20 << 20, again=3, most=64, busy=2.0, waited=0.8))
    The link is the limit: of the time spent waiting for batches, 80% was with requests
    under way. 200 requests of 102.4 KiB, at most 64 at a time, 10 MB/s; 3 were made again.
    """

    requests: int
    nbytes: int
    again: int  # requests that were made once more
    most: int  # requests under way at a time, at most, since the process began
    busy: float  # seconds in which some request was under way
    waited: float  # the share of the time spent waiting for batches in which one was

    @property
    def is_limit(self) -> bool:
        """Whether faster answers would give faster batches."""
        return self.waited >= _LIMIT

    @property
    def range_bytes(self) -> int:
        """Bytes that a request brought, on average."""
        return self.nbytes // max(1, self.requests)

    def __str__(self) -> str:
        limit = "is the limit" if self.is_limit else "is not the limit"
        again = f"; {self.again:,} were made again" if self.again else ""
        return (
            f"The link {limit}: of the time spent waiting for batches, {self.waited:.0%} was with "
            f"requests\nunder way. {self.requests:,} requests of {size(self.range_bytes)}, at most "
            f"{self.most} at a time, {self.nbytes / max(self.busy, 1e-9) / 1e6:,.0f} MB/s{again}."
        )


class LinkWatch:
    """Counts what goes over the link while batches are waited for, by a `clock`."""

    def __init__(self, clock: Clock) -> None:
        from oocdata.stores.link import link  # where nothing is remote, it need not be there

        self._clock, self._traffic = clock, link().traffic
        self._before = replace(self._traffic)
        self._waited = self._busy = 0.0

    def over(self, measure: Measure) -> Measure:
        """Return the same measure, which does nothing but wait for batches, watched."""

        def watched(seconds: float, number: int) -> float:
            asked, busy = self._clock(), self._traffic.busy
            rate = measure(seconds, number)
            self._waited += self._clock() - asked
            self._busy += self._traffic.busy - busy
            return rate

        return watched

    def found(self) -> LinkUse | None:
        """Return what was counted; None where nothing was fetched by this process."""
        now, was = self._traffic, self._before
        counts = (now.requests - was.requests, now.nbytes - was.nbytes, now.again - was.again)
        waited = min(1.0, self._busy / max(self._waited, 1e-9))
        return LinkUse(*counts, now.most, now.busy - was.busy, waited) if counts[0] else None
