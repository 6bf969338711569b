"""What to change, derived from what was measured; a rule a function."""

from __future__ import annotations

from collections.abc import Callable
from math import ceil

from oocdata.datasets.dataset import Dataset
from oocdata.explain import size
from oocdata.order import BlockShuffle
from oocdata.sources.adapt import chunk_bytes
from oocdata.sources.chunks import Chunks
from oocdata.sources.extents import Extents
from oocdata.sources.slots import chunk_budget
from oocdata.sources.strided import StridedReader
from oocdata.tools.bench.codecs import faster_codec
from oocdata.tools.bench.command import convert_command
from oocdata.tools.bench.files import available_memory
from oocdata.tools.bench.result import Advice, Bench, Limit
from oocdata.tools.bench.shuffling import (
    again,
    again_with,
    gains,
    mixes_poorly,
    row_bytes,
    shorter_chunks,
)
from oocdata.tools.bench.ways import loader_of
from oocdata.tools.profile.needed import needed, parts_of, sources_of

__all__ = ["advice"]

_MUCH = 1.5
"""So many times as fast is worth a change."""

_TWICE = 1.5
"""The same where each chunk should be decoded once."""

_WINDOW_CHUNKS = 64
"""Chunks that should be mixed at a time."""

_BOOKKEEPING = 1.01
"""What is kept takes a little more than its bytes."""

_CLOSE = 0.6
"""From this share of a limit on it is the limit that counts."""

_KINDS = {"disk": "the disk", "copy": "copying", "decode": "decoding", "python": "Python",
          "gil": "waiting for the GIL", "source": "the source",
          "map": "functions given to map"}  # fmt: skip

_PIECE = 4096
"""Bytes: shorter runs cost more to ask for than to copy."""


def advice(found: Bench, dataset: Dataset) -> tuple[Advice, ...]:
    """Return what to change, the most telling first; what is well is said where nothing is wrong.

    Parameters
    ----------
    found : Bench
        Without advice.
    dataset : Dataset
        What was measured.
    """
    rules: tuple[Callable[[Bench, Dataset], Advice | None], ...] = (
        _layout, _order, _chunks, _budget, _codec, _disk, _batch,
    )  # fmt: skip
    made = tuple(one for rule in rules if (one := rule(found, dataset)) is not None)
    if any(one.kind == "layout" for one in made):  # what is read together then are no chunks
        made = tuple(one for one in made if one.kind not in ("chunks", "budget", "codec"))
    return made or (_nothing(found),)


def _layout(found: Bench, dataset: Dataset) -> Advice | None:
    """See to rows whose bytes lie apart."""
    for source in sources_of(dataset):
        for part in parts_of(source):
            reader = part.reader if isinstance(part, Chunks) else None
            rows = reader.rows if isinstance(reader, StridedReader) else part
            if not isinstance(rows, Extents) or rows.shape[0] < 2:
                continue
            pieces, nbytes = rows.pieces_of_row()
            if pieces > 1 and nbytes < _PIECE:
                return Advice(
                    "layout",
                    f"The bytes of a row lie apart in the file, in {pieces:,} pieces of "
                    f"{size(nbytes)}. Written again with the row axis first, a row is read in one "
                    "piece.",
                    convert_command(found),
                )
    return None


def _order(found: Bench, dataset: Dataset) -> Advice | None:
    """See to a full shuffle that is much slower than one by blocks."""
    full, block = found.best("full shuffle"), found.best("block shuffle")
    if full is None or block is None or found.kept is not None:
        return None
    gain = block.rate / full.rate
    if gain < _MUCH:
        return None
    about = "about " if full.estimated or block.estimated else ""
    if found.chunk_rows > 1:
        decodes = f" decodes {again(found, 'full shuffle'):,.0f} rows for each row it uses and"
        return Advice(
            "order",
            f'A full shuffle (shuffle="global"){decodes} reaches {full.rate:,.0f} elements/s. '
            f'A block shuffle (shuffle=True, or "block") decodes each chunk once an epoch: '
            f"{about}{gain:,.1f} times as fast.",
        )
    loader = loader_of(dataset, "block shuffle", block.batch_size)
    if found.cache != "cold" or loader is None or not isinstance(loader.order, BlockShuffle):
        return None
    order = loader.order
    return Advice(
        "order",
        f"From the disk, runs of rows come {about}{gain:,.1f} times as fast as single ones: "
        f"shuffle=ooc.BlockShuffle({order.block}, {order.window}) mixes {order.window} runs of "
        f"{order.block} rows at a time.",
    )


def _chunks(found: Bench, dataset: Dataset) -> Advice | None:
    """See to chunks too long for shuffling."""
    rows = shorter_chunks(found, dataset)
    if rows is None:
        return None
    decoded = size(found.chunk_rows * row_bytes(dataset))
    text = f"Chunks of {found.chunk_rows:,} rows ({decoded} decoded) are long for shuffling."
    if gains(found, dataset, rows):
        smallest = min(way.batch_size for way in found.ways)
        text += (
            f" They make a full shuffle decode {again(found, 'full shuffle'):,.0f} rows for each "
            f"row it uses. With chunks of {rows:,} it would be about "
            f"{again_with(rows, dataset, smallest):,.1f}."
        )
    if mixes_poorly(found, dataset):
        text += (
            " Batches of a block shuffle hold neighbours, for few chunks are kept: more of the "
            "short ones would be."
        )
    return Advice("chunks", text, convert_command(found, chunks=rows))


def _budget(found: Bench, dataset: Dataset) -> Advice | None:
    """See to a budget too small to decode each chunk once, or to mix many."""
    chunked = [one for one in sources_of(dataset) if one.chunk_rows > 1]
    if not chunked or found.kept is not None:
        return None
    together = sum(chunk_bytes(source) for source in chunked)
    now = again(found, "block shuffle")
    poor = mixes_poorly(found, dataset)
    if now < _TWICE and not poor:
        return None
    everything = sum(one.decoded_bytes for one in needed(dataset)) * _BOOKKEEPING
    # Twice, because one window is read while the last batches of another still are.
    wanted = 1 << (ceil(min(2 * _WINDOW_CHUNKS * together, everything)) - 1).bit_length()
    if not chunk_budget() < wanted <= available_memory() // 4:
        return None
    problem = (
        f"A block shuffle decodes {now:.1f} rows for each row it uses"
        if now >= _TWICE
        else "Batches of a block shuffle hold neighbours"
    )
    then = "all are kept" if everything <= wanted else f"{_WINDOW_CHUNKS} are mixed at a time"
    return Advice(
        "budget",
        f"{problem}, because {size(chunk_budget())} of decoded chunks are kept, and a chunk is "
        f"{size(together)}. With {size(wanted)}, {then}.",
        f"OOCDATA_CHUNK_BYTES={wanted}",
    )


def _codec(found: Bench, dataset: Dataset) -> Advice | None:
    """See to a decoder that everything else waits for."""
    decoder, memory = found.limit("decoder"), found.limit("memory")
    usual = [found.best(order, measured=True) for order in ("sequential", "block shuffle")]
    best = max((way.rate for way in usual if way), default=0.0)
    if decoder is None or memory is None or found.kept is not None or found.codec == "none":
        return None
    share = best / decoder.elements
    if share < _CLOSE or memory.elements < 2 * decoder.elements:
        return None
    parts = [part for source in sources_of(dataset) for part in parts_of(source)]
    chunked = next((part for part in parts if isinstance(part, Chunks)), None)
    other = None if chunked is None else faster_codec(chunked, decoder.rate)
    text = (
        f"Decoding ({found.codec}) is the limit: {found.threads} threads decode "
        f"{decoder.rate / 1e6:,.0f} MB/s, and {min(share, 1):.0%} of that is used."
    )
    if other is None or other.gain < _MUCH:
        return Advice("codec", f"{text} More cores would help.")
    return Advice(
        "codec",
        f"{text} {other.codec} decodes these data {other.gain:.1f} times as fast, and stores them "
        f"in {other.ratio:.1f} times the bytes (tried on {size(other.nbytes)}).",
        convert_command(found, chunks=shorter_chunks(found, dataset), codec=other.codec),
    )


def _disk(found: Bench, dataset: Dataset) -> Advice | None:
    """See to a disk that everything else waits for."""
    if found.cache != "cold":
        return None
    shares: dict[str, tuple[float, Limit]] = {}
    for order in ("sequential", "full shuffle", "block shuffle"):
        best = found.best(order, measured=True)
        bound = found.bound(best) if best else None
        if best is not None and bound is not None and bound.name.startswith("disk"):
            shares[order] = best.rate / bound.elements, bound
    # What was outrun in any order is no limit: most of it came from memory after all.
    if any(share > 1 for share, _ in shares.values()):
        return None
    for order, (share, bound) in shares.items():
        if share < _CLOSE:
            continue
        text = (
            f"The disk gives {bound.rate / 1e6:,.0f} MB/s ({bound.name[5:]}), and {order} "
            f"uses {share:.0%} of it: only a faster disk helps"
        )
        if found.codec == "none":
            return Advice(
                "disk",
                f"{text}, or fewer bytes: compression, if the data compress well.",
                convert_command(found, codec="zstd"),
            )
        return Advice("disk", f"{text}, or memory for the whole file.")
    return None


def _batch(found: Bench, dataset: Dataset) -> Advice | None:
    """See to batches so small that what each costs is most of it."""
    for order in ("block shuffle", "sequential"):  # in a full one, rows share chunks by chance
        ways = [
            way
            for way in found.ways
            if way.order == order and way.reader == "NumPy" and len(way.rounds) > 1
        ]
        if len(ways) < 2:
            continue
        small, *_, large = sorted(ways, key=lambda way: way.batch_size)
        if large.rate >= _MUCH * small.rate and min(large.rounds) > max(small.rounds):
            return Advice(
                "batch",
                f"Batches of {small.batch_size} are bound by what each batch costs ({order}): "
                f"batches of {large.batch_size} give {large.rate / small.rate:.1f} times as many "
                "elements a second.",
            )
    return None


def _nothing(found: Bench) -> Advice:
    order = "block shuffle" if found.chunk_rows > 1 and not found.kept else "full shuffle"
    best = found.best(order, measured=True) or found.best("sequential", measured=True)
    bound = found.bound(best) if best else None
    if best is None or bound is None:
        return Advice("nothing", "Nothing stands out.")
    if bound.name.startswith("disk") and best.rate >= _MUCH * bound.elements:
        return Advice(
            "nothing",
            f"Nothing stands out: {best.order} is read {best.rate / bound.elements:.1f} times as "
            "fast as the disk gives, so most of it came from memory: the data are small, or were "
            "read ahead.",
        )
    share = min(1.0, best.rate / bound.elements)
    text = f"Nothing stands out: {best.order} reaches {share:.0%} of what the {bound.name} allows"
    spent = next((look.spent for look in found.looks if look.order == best.order), None)
    if share < _CLOSE and spent is not None and spent.samples:
        kind, most = next(iter(spent.shares.items()))
        text += f"; most of the time goes to {_KINDS.get(kind, kind)} ({most:.0%})"
    return Advice("nothing", f"{text}.")
