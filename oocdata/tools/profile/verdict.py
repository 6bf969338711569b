"""The verdict of a profile, and the remedy: plain sentences from measured figures."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from oocdata.order import BlockShuffle
from oocdata.threads import cores
from oocdata.tools.profile.sampling import Spent

if TYPE_CHECKING:
    from oocdata.loader import Loader

__all__ = ["remedy_of", "sentence_of", "verdict_of"]

_ALIKE = 1.25
"""Rates that differ by less than this factor are alike."""

_AGAIN = 4.0
_MOSTLY = 0.4
_WAITS = 0.2
"""From this share of the time on, a model that waits would gain from faster reading."""

_SMALL = 256
"""Elements: up to so many in a batch, more of them are worth trying."""


def verdict_of(data: float, model: float | None) -> Literal["data", "model", "balanced", "alone"]:
    """Return which of two rates is the bottleneck.

    Examples
    --------
    >>> verdict_of(100.0, 1000.0), verdict_of(1000.0, 100.0), verdict_of(100.0, 110.0)
    ('data', 'model', 'balanced')
    """
    if model is None:
        return "alone"
    if data > _ALIKE * model:
        return "model"
    return "data" if model > _ALIKE * data else "balanced"


def sentence_of(verdict: str, data: float, model: float | None, waited: float | None) -> str:
    """Return the verdict in words."""
    if model is None:
        return f"The loader alone gives {data:,.0f} elements/s."
    waits = f"together, the model waits {waited or 0:.0%} of the time"
    if verdict == "model":
        return (
            f"The model is the bottleneck: the data come {data / model:,.1f} times as fast as it "
            f"takes them ({waits})."
        )
    if verdict == "data":
        return (
            f"The data are the bottleneck: the model could take them {model / data:,.1f} times as "
            f"fast as they come ({waits})."
        )
    return f"Model and data are about as fast as each other ({waits})."


def remedy_of(
    verdict: str, loader: Loader, spent: Spent, amplification: float, waited: float | None = None
) -> str:
    """Return what to change."""
    if verdict == "model":
        if (waited or 0.0) < _WAITS:
            return "Nothing is to be gained by reading faster."
        rest = remedy_of("data", loader, spent, amplification)
        return (
            "It waits all the same: when an epoch begins, or for the cores that reading takes. "
            f"{rest}"
        ).rstrip()
    if not spent.samples:
        return ""
    shares = spent.shares
    kind = next(iter(shares))
    said = f"{shares[kind]:.0%} of reading is "
    if kind == "map":
        if loader.workers:
            return (
                f"{said}your map function: make it faster, or take more than "
                f"workers={loader.workers}, up to the {cores()} cores here."
            )
        return f"{said}your map function: .batches(…, workers=2) runs it in other processes."
    if amplification >= _AGAIN:
        if not isinstance(loader.order, BlockShuffle):
            return (
                f'Each row that is used decodes {amplification:,.0f}: shuffle=True or "block" '
                "decodes each chunk once; or store it again in shorter chunks (oocdata convert, "
                "--chunks)."
            )
        return (
            f"Each row that is used decodes {amplification:,.0f}, because too few chunks are kept: "
            "ooc.set_chunk_budget, or shorter chunks (oocdata convert, --chunks)."
        )
    if kind == "decode":
        return (
            f"{said}decoding: another codec helps, or more cores; `oocdata bench` tries codecs on "
            "your data."
        )
    if kind == "disk":
        return (
            f"{said}the disk's: a faster one helps, or memory for the whole file, or fewer bytes "
            "(oocdata convert, --codec)."
        )
    if kind == "source":
        return f"{said}the source's own read_into: that is what to make faster."
    if kind in ("python", "gil") and shares["python"] + shares["gil"] >= _MOSTLY:
        if loader.batch_size <= _SMALL:
            return (
                f"{shares['python'] + shares['gil']:.0%} of reading is what each batch costs "
                "besides its bytes: larger batches help."
            )
        return "What is left is Python, which does not get faster by more threads."
    return (
        f"{said}copying, which is as fast as memory is: fewer bytes a row help (a smaller dtype, "
        "v[:, …] to cut rows)."
    )
