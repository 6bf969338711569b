"""What `Loader.profile` found; it prints itself."""

from __future__ import annotations

import textwrap
from dataclasses import asdict, dataclass
from typing import Any, Literal

from oocdata.advice import Advice

__all__ = ["Profile"]

_WIDTH = 80
_ALIKE = 1.25
"""Rates within this factor are about the same."""

_SENTENCES = {
    "alone": "The loader alone gives {:,.0f} elements/s.",
    "model": "The model is the bottleneck.",
    "data": "The data are the bottleneck.",
    "balanced": "Model and data are about as fast as each other.",
}


@dataclass(frozen=True, slots=True)
class Profile:
    """Whether the model or the data are the bottleneck; ``print`` it.

    Examples
    --------
    >>> print(Profile(32_000.0, 2_286.0, 0.03, 0.0, 32, "NumPy", (), 5.0))
    data 1.0 ms, model 14 ms a batch; the model waited 3% of the time.
    The model is the bottleneck. Nothing is to be gained by reading faster.
    """

    # Elements a second that the loader gives to a loop that does nothing with them. Chunks that are
    # cached stay so: where all of them fit, that is the rate of later epochs.
    data_rate: float
    model_rate: float | None  # elements a second that the model takes, on one batch again and again
    waited: float | None  # the share of the time in which the model waited, both together
    mapped: float  # the share of a batch's reading that functions given to `map` take
    batch_size: int
    reader: str  # "NumPy" for plain iteration, or "to_tf"
    advice: tuple[Advice, ...]  # what to change, where the model waits
    seconds: float  # how long it took

    @property
    def verdict(self) -> Literal["data", "model", "balanced", "alone"]:
        """Which of the two is the bottleneck; "alone" where no model was given."""
        if self.model_rate is None:
            return "alone"
        if self.data_rate > _ALIKE * self.model_rate:
            return "model"
        return "data" if self.model_rate > _ALIKE * self.data_rate else "balanced"

    def __str__(self) -> str:
        lines = []
        if self.model_rate is not None:
            data, model = (
                _time(self.batch_size / max(rate, 1e-9))
                for rate in (self.data_rate, self.model_rate)
            )
            waited = f"the model waited {self.waited or 0:.0%} of the time."
            lines.append(f"data {data}, model {model} a batch; {waited}")
        sentence = _SENTENCES[self.verdict].format(self.data_rate)
        if self.verdict == "model" and not self.advice:
            sentence += " Nothing is to be gained by reading faster."
        lines.append(sentence)
        for one in self.advice:
            wrapped = textwrap.wrap(one.text, _WIDTH - 2, break_on_hyphens=False)
            lines += [
                f"{'- ' if not number else '  '}{line}" for number, line in enumerate(wrapped)
            ]
            lines += [f"  {one.command}"] if one.command else []
        return "\n".join(lines)

    def to_json(self) -> dict[str, Any]:
        """Return everything for ``json.dumps``."""
        return {**asdict(self), "verdict": self.verdict}


def _time(seconds: float) -> str:
    """Return a time in words.

    Examples
    --------
    >>> _time(0.0012), _time(0.123), _time(3.5)
    ('1.2 ms', '123 ms', '3.5 s')
    """
    if seconds >= 1:
        return f"{seconds:.1f} s"
    return f"{1000 * seconds:.{1 if seconds < 0.00995 else 0}f} ms"
