"""What `Loader.profile` found, and the sentence that says it."""

from __future__ import annotations

import textwrap
from dataclasses import asdict, dataclass
from typing import Any, Literal, TypeAlias

from oocdata.tools.profile.sampling import Spent

__all__ = ["Epochs", "Profile"]

Epochs: TypeAlias = Literal["all", "first", "later"]
"""Which epochs a rate is of; all, where they are alike."""

_WORDS = {
    "disk": "reading from the disk",
    "decode": "decoding",
    "copy": "copying",
    "map": "functions given to map",
    "source": "the source itself",
    "python": "Python: which rows, handing over",
    "gil": "waiting for the GIL",
}
_WHICH = {
    "all": "",
    "first": " in the first epoch; others from memory",
    "later": " from the second epoch on, from memory",
}
_WIDTH = 80
_MORE_THAN_ONCE = 1.05


@dataclass(frozen=True, slots=True)
class Profile:
    """Whether the model or the data are the bottleneck; ``print`` it.

    Attributes
    ----------
    verdict : {"data", "model", "balanced", "alone"}
        What the other one waits for; "alone" where no model was given.
    sentence : str
        The verdict in words.
    remedy : str
        What to change.
    data_rate : float
        Elements a second that the loader gives to whoever does nothing with them.
    epochs : {"all", "first", "later"}
        Which epochs `data_rate`, `both_rate` and `spent` are of. They differ where all that the
        first one decodes is kept for later ones: those are timed, if there is time for the first.
    first_rate : float or None
        Elements a second in the first epoch; None where all epochs are alike.
    model_rate : float or None
        Elements a second that the model takes, on one batch again and again.
    both_rate : float or None
        Elements a second of both together.
    waited : float or None
        The share of the time of both in which the model waited for a batch.
    overlap : float or None
        How much of the shorter of the two is hidden behind the longer: 0, they take turns; 1, all.
        None where one takes less than a tenth of the other: that can't be told from chance.
    spent : Spent
        Where the time of the threads that read goes, without the model.
    amplification : float
        Rows read for each row used, as `Loader.explain` tells.
    batch_size, workers : int
    reader : str
        ``"NumPy"`` for plain iteration, or ``"to_tf"``.
    seconds : float
        How long it took.
    """

    verdict: Literal["data", "model", "balanced", "alone"]
    sentence: str
    remedy: str
    data_rate: float
    epochs: Epochs
    first_rate: float | None
    model_rate: float | None
    both_rate: float | None
    waited: float | None
    overlap: float | None
    spent: Spent
    amplification: float
    batch_size: int
    workers: int
    reader: str
    seconds: float

    def __str__(self) -> str:
        lines = [textwrap.fill(f"{self.sentence} {self.remedy}".strip(), _WIDTH), ""]
        lines.append(f"{'data alone':<14}{self.data_rate:>14,.0f} elements/s{_WHICH[self.epochs]}")
        if self.epochs == "later" and self.first_rate is not None:
            lines.append(
                f"{'first epoch':<14}{self.first_rate:>14,.0f} elements/s: it reads and decodes all"
            )
        if self.model_rate is not None and self.both_rate is not None:
            lines.append(f"{'model alone':<14}{self.model_rate:>14,.0f} elements/s")
            lines.append(
                f"{'both':<14}{self.both_rate:>14,.0f} elements/s, of which the model waits "
                f"{self.waited or 0:.0%} of the time"
            )
            if self.overlap is not None:
                lines.append(f"{'overlap':<14}{self.overlap:>14.0%}")
        if self.spent.samples:
            where = " (read in this process, without workers)" if self.workers else ""
            lines += ["", f"where the time of reading goes{where}"]
            lines += [
                f"  {share:>4.0%}  {_WORDS[kind]}"
                for kind, share in self.spent.shares.items()
                if share >= 0.005
            ]
        if self.amplification > _MORE_THAN_ONCE:
            lines.append(f"{self.amplification:,.1f} rows are read for each row used.")
        return "\n".join(lines)

    def as_json(self) -> dict[str, Any]:
        """Return everything for ``json.dumps``."""
        return asdict(self)
