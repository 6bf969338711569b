"""What `bench` found, as text of at most 80 columns."""

from __future__ import annotations

import textwrap

from oocdata.explain import as_typed, size
from oocdata.tools.bench.result import Bench, Look, Way

__all__ = ["bench_text"]

_WIDTH = 80

_STATES = {
    "warm": "warm: in the page cache, as from the second epoch on (--cold: as in the first)",
    "cold": "cold: dropped from the page cache before each epoch",
    "memory": "not from a file that is here, so neither warm nor cold",
}

_LIMITS = {
    "disk in sequence": ("disk, in sequence, cold", "stored"),
    "disk at random": ("disk, at random, cold", "stored"),
    "decoder": ("decoder, {threads} threads", "decoded"),
    "memory": ("memory, copied by {threads} threads", "delivered"),
}

_SHORT = {"disk in sequence": "disk", "disk at random": "disk, random"}


def bench_text(found: Bench) -> str:
    """Return what was found: the file, limits, ways, where the time goes, what to change."""
    blocks = [_head(found), _limits(found), _ways(found), _looks(found), _advice(found)]
    return "\n\n".join(block for block in blocks if block)


def _head(found: Bench) -> str:
    where = as_typed(found.path) if found.path else "memory"
    key = f", {found.key}" if found.key else ""
    stored = "" if found.stored_bytes is None else f", {size(found.stored_bytes)} stored"
    noun = "element" if found.elements == 1 else "elements"
    lines = [
        f"{where}{key}: {found.elements:,} {noun} of {found.element}",
        f"{found.format}, {found.storage}, codec {found.codec}{stored}",
        f"The data are {_STATES[found.cache]}.",
        *found.notes,
        f"Measured in {found.seconds:.0f} s, within {size(found.memory_bytes)} of memory.",
    ]
    return "\n".join(_wrapped(line) for line in lines)


def _limits(found: Bench) -> str:
    lines = [f"{'what the machine allows':<40}{'MB/s':>10}{'spread':>8}{'elements/s':>15}"]
    for limit in found.limits:
        words, of = _LIMITS[limit.name]
        name = f"{words.format(threads=found.threads)} ({of})"
        lines.append(
            f"{name:<40}{limit.rate / 1e6:>10,.0f}{_spread(limit.rounds):>8}"
            f"{limit.elements:>15,.0f}"
        )
    return "\n".join(lines)


def _spread(rounds: tuple[float, ...]) -> str:
    from statistics import median

    middle = median(rounds)
    return f"{(max(rounds) - min(rounds)) / middle:.0%}" if middle and len(rounds) > 1 else "-"


def _ways(found: Bench) -> str:
    titles = f"{'elements/s':>12}{'MB/s':>8}{'spread':>7}  of its limit"
    lines = [f"{'way':<16}{'batch':>7}  {'reader':<7}{titles}"]
    lines += [_way(found, way, way.order) for way in found.ways]
    if found.kept is not None:
        lines.append(_way(found, found.kept, "2nd epoch, kept"))
    if any(way.estimated for way in found.ways):
        lines.append(
            "≈ worked out from what one read decodes or fetches: it would have taken too long"
        )
    return "\n".join(lines)


def _way(found: Bench, way: Way, name: str) -> str:
    bound = found.bound(way)
    share = (
        f"{way.rate / bound.elements:.0%} {_SHORT.get(bound.name, bound.name)}" if bound else "-"
    )
    about = "≈" if way.estimated else ""
    return (
        f"{name:<16}{way.batch_size:>7,}  {way.reader:<7}{about + f'{way.rate:,.0f}':>12}"
        f"{way.rate * found.element_bytes / 1e6:>8,.0f}{_spread(way.rounds):>7}  {share}"
    )


def _looks(found: Bench) -> str:
    seen = [look for look in found.looks if look.spent.samples]
    if not seen:
        return ""
    kinds = [
        kind for kind in ("disk", "decode", "copy", "map", "source", "python", "gil")
        if any(getattr(look.spent, kind) >= 0.005 for look in seen)
    ]  # fmt: skip
    words = {"python": "Python", "gil": "GIL"}
    head = "".join(f"{words.get(kind, kind):>7}" for kind in kinds)
    lines = [f"{'where the time goes':<22}{head}{'threads':>9}{'rows decoded':>14}"]
    for look in seen:
        shares = "".join(f"{getattr(look.spent, kind):>7.0%}" for kind in kinds)
        name = f"{look.order}, {look.batch_size:,}"
        lines.append(f"{name:<22}{shares}{look.spent.threads:>9.1f}{_again(look):>14}")
    if any(look.amplification is not None and not look.counted for look in seen):
        lines.append("≈ foretold from the order: there was no time for a whole epoch")
    return "\n".join(lines)


def _again(look: Look) -> str:
    about = "" if look.counted else "≈"
    return "-" if look.amplification is None else f"{about}{look.amplification:,.1f}×"


def _advice(found: Bench) -> str:
    lines = ["what to change"]
    for one in found.advice:
        lines.append(_wrapped(one.text, "- ", "  "))
        if one.command:
            lines.append(f"    {one.command}")
    return "\n".join(lines)


def _wrapped(text: str, first: str = "", rest: str = "") -> str:
    return textwrap.fill(
        text,
        _WIDTH,
        initial_indent=first,
        subsequent_indent=rest,
        break_long_words=False,
        break_on_hyphens=False,
    )
