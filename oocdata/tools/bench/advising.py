"""What to change, derived from what was measured; a rule a function."""

from __future__ import annotations

from collections.abc import Callable
from math import log2, prod

from oocdata.choice import WINDOW_BYTES
from oocdata.cost import chunk_bytes
from oocdata.datasets.dataset import Dataset
from oocdata.explain import size
from oocdata.memory import DEFAULT_MEMORY, cache_share, memory_limit
from oocdata.order.mixing import mixing
from oocdata.tools.bench.command import convert_command
from oocdata.tools.bench.files import available_memory
from oocdata.tools.bench.result import Advice, Bench

__all__ = ["advice"]

_MUCH = 1.5
"""So many times as fast is worth a change."""

_AGAIN = 4.0
"""Bytes decoded for each byte used, from which on chunks are too long for shuffling."""

_TWICE = 1.5
"""The same where each chunk should be decoded once."""

_POOR_MIXING = 0.9
"""Below this share of a full shuffle's batch entropy, batches hold too many neighbours."""

_CHUNK_BYTES = 128 << 10
"""Chunks of about this size cost little to decode for one row, and little each."""

_CLOSE = 0.6
"""From this share of a limit on it is the limit that counts."""


def advice(found: Bench, dataset: Dataset) -> tuple[Advice, ...]:
    """Return what to change, the most telling first; what is well is said where nothing is wrong.

    Parameters
    ----------
    found : Bench
        Without advice.
    dataset : Dataset
        What was measured.
    """
    layout = _layout(found, dataset)
    if layout is not None:  # rows that are read together then are no chunks of the file
        return (layout,)
    rules: tuple[Callable[[Bench, Dataset], Advice | None], ...] = (
        _order, _chunks, _memory, _codec, _disk, _batch,
    )  # fmt: skip
    made = tuple(one for rule in rules if (one := rule(found, dataset)) is not None)
    return made or (_nothing(found),)


def _layout(found: Bench, dataset: Dataset) -> Advice | None:
    """See to rows whose bytes lie apart in the file."""
    for source in dataset.sources():
        storage = source.storage()
        if storage.strides is not None and storage.chunks is not None:
            return Advice(
                "layout",
                "The bytes of a row lie apart in the file, so many rows are read together. Written "
                "again with the sample axes first, a row is read in one piece.",
                convert_command(found),
            )
    return None


def _order(found: Bench, dataset: Dataset) -> Advice | None:
    """See to a full shuffle that is much slower than one by blocks."""
    full, block = found.best("full shuffle"), found.best("block shuffle")
    if full is None or block is None or block.rate < _MUCH * full.rate:
        return None
    about = "about " if full.estimated or block.estimated else ""
    return Advice(
        "order",
        f'A full shuffle (shuffle="global") decodes {full.amplification:,.0f} bytes for each byte '
        f"it uses and reaches {full.rate:,.0f} elements/s. A block shuffle (shuffle=True, or "
        f'"block") decodes each chunk about once an epoch: {about}{block.rate / full.rate:,.1f} '
        "times as fast.",
    )


def _mixes_poorly(found: Bench, dataset: Dataset) -> bool:
    """Return whether batches of a block shuffle hold too many neighbours, by their entropy."""
    if found.best("block shuffle") is None:
        return False
    smallest = min(way.batch_size for way in found.ways)
    loader = dataset.batches(smallest, shuffle="block")
    mixed = mixing(loader.positions, len(loader), dataset.blocks, len(dataset))
    return mixed.entropy < _POOR_MIXING * mixed.full_shuffle_entropy


def _chunks(found: Bench, dataset: Dataset) -> Advice | None:
    """See to chunks too long for shuffling."""
    if found.chunk_rows <= 1:
        return None
    row = max(1, found.element_bytes)
    smallest = min(way.batch_size for way in found.ways)
    rows = 1 << int(log2(max(1, min(_CHUNK_BYTES // row, smallest))))
    full = found.best("full shuffle")
    again = 1.0 if full is None else full.amplification
    poorly = _mixes_poorly(found, dataset)
    if found.chunk_rows < 2 * rows or not (again >= _AGAIN or poorly):
        return None
    text = f"Chunks of {found.chunk_rows:,} rows are long for shuffling."
    if again >= _AGAIN:
        text += f" They make a full shuffle decode {again:,.0f} bytes for each byte it uses."
    if poorly:
        text += " Batches of a block shuffle hold neighbours: more of shorter ones would be mixed."
    return Advice("chunks", text, convert_command(found, chunks=rows))


def _memory(found: Bench, dataset: Dataset) -> Advice | None:
    """See to a cache too small to decode each chunk once."""
    block = found.best("block shuffle")
    if found.chunk_rows <= 1 or block is None or block.amplification < _TWICE:
        return None
    chunked = [(source, source.storage()) for source in dataset.sources()]
    everything = sum(prod(source.shape) * source.dtype.itemsize for source, _ in chunked)
    together = sum(chunk_bytes(source, storage) for source, storage in chunked)
    wanted = 2 * min(2 * max(WINDOW_BYTES, 8 * together), everything)
    wanted = 1 << (int(wanted) - 1).bit_length()
    if not memory_limit() < wanted <= available_memory() // 4:
        return None
    usual = "" if memory_limit() == DEFAULT_MEMORY else " You gave it less than the usual."
    return Advice(
        "memory",
        f"A block shuffle decodes {block.amplification:.1f} bytes for each byte it uses, because "
        f"{size(cache_share())} of decoded chunks are cached.{usual}",
        f"OOCDATA_MEMORY={wanted}",
    )


def _codec(found: Bench, dataset: Dataset) -> Advice | None:
    """See to a decoder that everything else waits for."""
    decoder, memory = found.limit("decoder"), found.limit("memory")
    usual = [found.best(order, measured=True) for order in ("sequential", "block shuffle")]
    best = max((way.rate for way in usual if way), default=0.0)
    if decoder is None or memory is None or found.codec == "none":
        return None
    if best < _CLOSE * decoder.elements or memory.elements < 2 * decoder.elements:
        return None
    return Advice(
        "codec",
        f"Decoding ({found.codec}) is the limit: it gives {decoder.rate / 1e6:,.0f} MB/s here, and "
        f"{min(best / decoder.elements, 1):.0%} of that is used. A faster codec (lz4, zstd), or "
        "more cores, would help.",
        convert_command(found, codec="blosc-lz4" if found.format.startswith("Zarr") else "lz4"),
    )


def _disk(found: Bench, dataset: Dataset) -> Advice | None:
    """See to a disk that everything else waits for."""
    if found.cache != "cold":
        return None
    for order in ("sequential", "full shuffle", "block shuffle"):
        best = found.best(order, measured=True)
        bound = found.bound(best) if best else None
        if best is None or bound is None or not bound.name.startswith("disk"):
            continue
        share = best.rate / bound.elements
        if not _CLOSE <= share <= 1:  # a disk that was outrun was not what was read from
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
    order = "block shuffle" if found.chunk_rows > 1 else "full shuffle"
    best = found.best(order, measured=True) or found.best("sequential", measured=True)
    bound = found.bound(best) if best else None
    if best is None or bound is None:
        return Advice("nothing", "Nothing stands out.")
    share = min(1.0, best.rate / bound.elements)
    return Advice(
        "nothing",
        f"Nothing stands out: {best.order} reaches {share:.0%} of what the {bound.name} allows.",
    )
