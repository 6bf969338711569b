"""What `Loader.profile` found, and the sentences that say it."""

from __future__ import annotations

import textwrap
from dataclasses import asdict, dataclass
from typing import Any, Literal

from oocdata.threads import cores

__all__ = ["Profile"]

_WIDTH = 80
_ALIKE = 1.25
"""Rates within this factor are about the same."""

_AGAIN = 1.5
"""Bytes decoded for each byte used, from which on another order or other chunks help."""

_MOSTLY = 0.5
_WAITS = 0.1
_SMALL = 256
"""Elements: up to so many in a batch, more of them are worth trying."""


@dataclass(frozen=True, slots=True)
class Profile:
    """Whether the model or the data are the bottleneck; ``print`` it.

    Attributes
    ----------
    data_rate : float
        Elements a second that the loader gives to a loop that does nothing with them. Decoded
        chunks that are cached stay so: where all of them fit, that is the rate of later epochs.
    model_rate : float or None
        Elements a second that the model takes, on one batch again and again.
    both_rate : float or None
        Elements a second of both together.
    waited : float or None
        The share of the time of both in which the model waited for a batch.
    mapped : float
        The share of a batch's reading that functions given to `map` take.
    decodes : bool
        Whether elements are decoded in chunks.
    amplification : float
        Bytes decoded for each byte used, as `Loader.explain` tells.
    order : str
        Name of the order's class.
    batch_size, workers : int
    reader : str
        ``"NumPy"`` for plain iteration, or ``"to_tf"``.
    seconds : float
        How long it took.

    Examples
    --------
    >>> found = Profile(500.0, 50.0, 49.0, 0.02, 0.0, False, 1.0, "Shuffle", 32, 0, "NumPy", 5.0)
    >>> print(found)
    data 64 ms, model 640 ms, both 653 ms a batch; the model waits 2% of the time.
    The model is the bottleneck: nothing is to be gained by reading faster.
    """

    data_rate: float
    model_rate: float | None
    both_rate: float | None
    waited: float | None
    mapped: float
    decodes: bool
    amplification: float
    order: str
    batch_size: int
    workers: int
    reader: str
    seconds: float

    @property
    def verdict(self) -> Literal["data", "model", "balanced", "alone"]:
        """Which of the two is the bottleneck; "alone" where no model was given."""
        if self.model_rate is None:
            return "alone"
        if self.data_rate > _ALIKE * self.model_rate:
            return "model"
        return "data" if self.model_rate > _ALIKE * self.data_rate else "balanced"

    @property
    def sentence(self) -> str:
        """The verdict in words."""
        return {
            "alone": f"The loader alone gives {self.data_rate:,.0f} elements/s.",
            "model": "The model is the bottleneck:",
            "data": "The data are the bottleneck:",
            "balanced": "Model and data are about as fast as each other:",
        }[self.verdict]

    @property
    def remedy(self) -> str:
        """What to change."""
        if self.verdict == "alone":
            return ""
        if self.verdict == "model" and (self.waited or 0.0) < _WAITS:
            return "nothing is to be gained by reading faster."
        if self.mapped > _MOSTLY:
            said = f"{self.mapped:.0%} of a batch's time is your map function"
            if self.workers:
                return (
                    f"{said}: make it faster, or take more than workers={self.workers}, up to the "
                    f"{cores()} cores here."
                )
            return f"{said}: .batches(…, workers=2) runs it in other processes."
        if self.amplification >= _AGAIN:
            said = f"each byte that is used decodes {self.amplification:,.1f}"
            if self.order != "BlockShuffle":
                return (
                    f'{said}: shuffle=True or "block" decodes each chunk about once; or store it '
                    "again in shorter chunks (oocdata convert, --chunks)."
                )
            return (
                f"{said}, because too few chunks are cached: ooc.set_memory, or shorter chunks "
                "(oocdata convert, --chunks)."
            )
        if self.decodes:
            return "chunks are decoded: a faster codec or more cores help (oocdata bench)."
        if self.batch_size <= _SMALL:
            return "larger batches cost less each; `oocdata bench` shows how much."
        return "it reads as fast as bytes are copied: smaller rows help (a smaller dtype, cuts)."

    def __str__(self) -> str:
        lines = []
        if self.model_rate is not None and self.both_rate is not None:
            times = [
                f"{name} {_time(self.batch_size / max(rate, 1e-9))}"
                for name, rate in [
                    ("data", self.data_rate),
                    ("model", self.model_rate),
                    ("both", self.both_rate),
                ]
            ]
            waits = f"the model waits {self.waited or 0:.0%} of the time"
            lines.append(f"{', '.join(times)} a batch; {waits}.")
        lines.append(textwrap.fill(f"{self.sentence} {self.remedy}".strip(), _WIDTH))
        return "\n".join(lines)

    def as_json(self) -> dict[str, Any]:
        """Return everything for ``json.dumps``."""
        return {**asdict(self), "verdict": self.verdict, "remedy": self.remedy}


def _time(seconds: float) -> str:
    """Return a time in words.

    Examples
    --------
    >>> _time(0.0123), _time(3.5)
    ('12 ms', '3.5 s')
    """
    if seconds >= 1:
        return f"{seconds:.1f} s"
    return f"{1000 * seconds:.2g} ms" if seconds < 0.1 else f"{1000 * seconds:.0f} ms"
