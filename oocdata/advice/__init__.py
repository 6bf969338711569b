"""The one place that gives advice: what to change so that elements come faster, and what it gains.

`Reading` describes how a loader reads: its storage (`Source.storage`) and its cost
(`oocdata.cost`). Tools add what they have measured, and print the sentences of `advise`.
"""

from __future__ import annotations

import shlex
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from os.path import basename

import numpy as np

from oocdata.advice.reading import Reading, as_typed, reading_of, size
from oocdata.memory import cache_share
from oocdata.order.mixing import Mixing

__all__ = [
    "POOR_MIXING", "Advice", "Measured", "Reading", "advise", "as_typed", "mixing_share",
    "reading_of", "size",
]  # fmt: skip

_MUCH = 1.5
"""A change is worth a sentence from this factor on."""

_LONG = 4.0
"""Bytes decoded for each byte used from which on shorter chunks are advised."""

POOR_MIXING = 0.9
"""Share of a full shuffle's batch entropy below which batches hold too many neighbours."""

_CLOSE = 0.6
"""Share of a limit from which on the limit counts."""

_SMALL_BATCH = 256
"""Batches up to this size are worth enlarging."""

_LARGE_REQUEST = 1 << 20
"""Bytes of a request from which on it takes longer to send them than to ask for them."""

_SCATTERED = 6
"""Requests for metadata, one after the other, from which on gathering them is worth a copy."""


@dataclass(frozen=True, slots=True)
class Advice:
    """One change."""

    kind: str  # "layout", "order", "chunks", "map", "codec", "disk", "link" or "batch"
    text: str  # whole sentences, with figures
    command: str | None = None  # for the shell

    def __str__(self) -> str:
        text = textwrap.fill(self.text, 80, initial_indent="- ", subsequent_indent="  ",
                             break_long_words=False, break_on_hyphens=False)  # fmt: skip
        return text if self.command is None else f"{text}\n    {self.command}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What a tool has measured, as far as it has; rates in elements a second."""

    # Rounds of "sequential", "full shuffle" and "block shuffle", by batch size.
    rates: Mapping[str, Mapping[int, Sequence[float]]] = field(default_factory=dict)
    # Of the machine: "memory", "decoder", "disk".
    limits: Mapping[str, float] = field(default_factory=dict)
    mapped: float = 0.0  # the share of a batch's time that functions given to `map` take
    waits: bool = False  # a model waits for the data, so that anything faster helps
    # Bytes that a request to a store brings, where the link to it is the limit.
    fetched: int | None = None

    def best(self, order: str) -> float:
        """Return the highest rate of an order, by medians; 0 where it was not measured."""
        rates = self.rates.get(order, {}).values()
        return max((float(np.median(rounds)) for rounds in rates), default=0.0)


def advise(reading: Reading, measured: Measured | None = None) -> tuple[Advice, ...]:
    """Return what to change, the most telling first; nothing where nothing stands out.

    Examples
    --------
    >>> from oocdata.engines.source import Storage
    >>> storage = Storage("HDF5", chunks=(100, 64), codec="gzip 4")
    >>> reading = Reading(storage=storage, order="full shuffle", together=100, full=30.0)
    >>> [one.kind for one in advise(reading)]
    ['order', 'chunks']
    >>> print(advise(reading)[1].text)
    Chunks of 100 rows are long for shuffling. With 32 rows a full shuffle would decode about 10
    bytes for each byte used, not 30.
    """
    measured = measured or Measured()
    found = (*_of_order(reading, measured), *_of_store(reading, measured))
    found += (*_of_limits(reading, measured),)
    if found or not measured.waits:
        return found
    text = "Bytes are copied as fast as can be: a smaller dtype or cut rows help."
    if reading.storage.chunks is not None:
        return (Advice("codec", "Chunks are decoded: a faster codec or more cores help."),)
    if reading.batch_size <= _SMALL_BATCH:
        text = "Larger batches cost less an element (see `oocdata bench`)."
    return (Advice("batch", text),)


def mixing_share(mixed: Mixing) -> float:
    """Return the share of a full shuffle's batch entropy that an order reaches."""
    full = mixed.full_shuffle_entropy
    return mixed.entropy / full if full > 0 else 1.0


def _bytes(number: float) -> str:
    return "1 byte" if round(number) == 1 else f"{number:,.0f} bytes"


def _of_order(reading: Reading, measured: Measured) -> Iterator[Advice]:
    """Yield advice about what a batch is made of: functions, axes, order and chunks."""
    if measured.mapped > 0.5:
        text = f"{measured.mapped:.0%} of a batch's time is your map function: "
        some = f"make it faster, or take more than {reading.workers} workers."
        none = ".batches(…, workers=2) runs it in other processes."
        yield Advice("map", text + (some if reading.workers else none))
    strides = reading.storage.strides
    if reading.spread and strides is not None:
        text = (
            f"The bytes of a row lie apart: {size(reading.row_bytes)} are spread over "
            f"{size(reading.spread)} of the file"
        )
        if reading.together > 1:
            text += f", so {reading.together:,} rows are read together"
        text += (
            f". Rows along axis={strides.index(max(strides))} lie in one piece; if those are not "
            "what you want, write the array again with the sample axes first."
        )
        yield Advice("layout", text, reading.convert())
        return  # blocks of rows that lie apart are no chunks of the file
    full, block = measured.best("full shuffle"), measured.best("block shuffle")
    text = f'A full shuffle (shuffle="global") decodes {_bytes(reading.full)} for each byte used'
    if reading.full >= _MUCH and full and block >= _MUCH * full:
        text += f" and reaches {full:,.0f} elements/s; a block shuffle (shuffle=True) is "
        yield Advice("order", f"{text}{block / full:,.1f} times as fast.")
    elif reading.full >= _MUCH and (reading.order == "full shuffle" or (block and not full)):
        # It may have been too slow to be measured.
        yield Advice("order", f"{text}; a block shuffle (shuffle=True) decodes each chunk once.")
    pieces, held = reading.pieces, reading.chunk_rows
    if pieces > 1 and held > 1 and reading.unused < _MUCH:
        text = (
            f"Chunks of {reading.storage.chunks} cut each row into {pieces:,} pieces, as h5py's "
            f"own chunks do: for one row {pieces:,} chunks are decoded, which hold {held:,} rows. "
            "Written again by `oocdata convert`, each row lies in 1 chunk."
        )
        yield Advice("chunks", text, reading.convert(chunked=True))
    else:
        yield from _of_chunk_rows(reading)
    if reading.unused >= _MUCH:
        yield Advice(
            "chunks",
            f"Elements are cut out of larger chunks: {reading.unused:.1f} bytes are decoded for "
            "each byte of an element. Chunks as large as an element along its own axes would help.",
        )


def _of_chunk_rows(reading: Reading) -> Iterator[Advice]:
    """Yield the advice of shorter chunks, or of more of them mixed, where the order needs it."""
    rows, mixed = reading.fitting_rows, reading.mixing
    costly = reading.order == "full shuffle" and reading.full >= _LONG
    again = 1.0  # how often each chunk is decoded in an order that should decode it once
    if reading.together > 1 and reading.order != "full shuffle":
        again = reading.amplification / max(1.0, reading.unused)
    poor = mixed is not None and mixing_share(mixed) < POOR_MIXING
    if poor and reading.together < 2 * rows:
        yield Advice("order", "Batches hold neighbours: shuffle=True mixes more blocks.")
    if reading.together < 2 * rows or not (costly or again >= _MUCH or poor):
        return
    text = f"Chunks of {reading.together:,} rows are long for shuffling."
    if costly:
        fewer = max(1.0, reading.full * rows / reading.together)
        text += (
            f" With {rows:,} rows a full shuffle would decode about {_bytes(fewer)} for each byte "
            f"used, not {reading.full:,.0f}."
        )
    if again >= _MUCH:
        text += (
            f" Each is decoded {again:.1f} times, because only {size(cache_share())} of decoded "
            "chunks are cached: ooc.set_memory says how many."
        )
    if poor and mixed is not None:
        text += (
            f" Batches hold neighbours ({mixed.entropy:.1f} bits of batch entropy, "
            f"{mixed.full_shuffle_entropy:.1f} in a full shuffle): of chunks of {rows:,} rows more "
            "are mixed."
        )
    yield Advice("chunks", text, reading.convert(chunks=rows))


def _of_store(reading: Reading, measured: Measured) -> Iterator[Advice]:
    """Yield advice about the link to a store: fewer and larger requests, or bytes nearer by."""
    storage = reading.storage
    if measured.fetched is not None:
        nearer = (
            "What would help: a cache folder for later epochs (cache=… of ooc.open), more memory, "
            "for more bytes under way (ooc.set_memory), or a machine nearer to the store."
        )
        text = f"Requests bring {size(measured.fetched)} each, which the way there and back "
        text += "outweighs. "
        if measured.fetched >= _LARGE_REQUEST:
            yield Advice("link", nearer)
        elif storage.chunks is None:
            text += (
                f"A copy in chunks is fetched in larger ranges, and shuffled by blocks. {nearer}"
            )
            yield Advice("link", text, reading.convert(chunked=True))
        else:
            rows = max(1, reading.chunk_rows * (_LARGE_REQUEST // max(1, measured.fetched)))
            command = reading.convert(chunks=rows)
            yield Advice("link", f"{text}Larger chunks make fewer. {nearer}", command)
    if storage.is_remote and storage.format.startswith("HDF5"):
        from oocdata.stores.blocks import BLOCK, blocks_of_metadata
        from oocdata.stores.versions import ObjectVersion

        objects = (one for one in storage.files if isinstance(one, ObjectVersion))
        blocks = max(map(blocks_of_metadata, objects))
        name = basename(storage.files[0].path)
        if blocks >= _SCATTERED:
            yield Advice(
                "metadata",
                f"The file's metadata lie scattered over {blocks} blocks of {size(BLOCK)}, fetched "
                "one after the other. A copy with its metadata together in pages (h5repack -S "
                "PAGE), or as Zarr (oocdata convert), opens in a few requests.",
                shlex.join(["h5repack", "-S", "PAGE", "-G", "4194304", name, f"paged-{name}"]),
            )


def _of_limits(reading: Reading, measured: Measured) -> Iterator[Advice]:
    """Yield advice about the decoder and the disk, where everything else waits for one of them."""
    limits, codec = measured.limits, reading.storage.codec
    decoder, disk = limits.get("decoder", inf), limits.get("disk", inf)
    best = max(measured.best("sequential"), measured.best("block shuffle"))
    if codec != "none" and best >= _CLOSE * decoder and limits["memory"] >= 2 * decoder:
        yield Advice(
            "codec",
            f"Decoding ({codec}) is the limit: {min(best / decoder, 1):.0%} of what it allows is "
            "used. A faster codec (lz4, zstd) or more cores would help.",
            reading.convert(codec="blosc-lz4" if "Zarr" in reading.storage.format else "lz4"),
        )
    share = measured.best("sequential") / disk  # above 1 the bytes did not come from the disk
    if disk <= min(limits.get("memory", inf), decoder) and _CLOSE <= share <= 1:
        text = (
            f"The disk is the limit: sequential uses {share:.0%} of what it gives. A faster disk "
        )
        if codec != "none":
            yield Advice("disk", f"{text}helps, or memory for the whole file.")
        else:
            text += "helps, or compression, if the data compress well."
            yield Advice("disk", text, reading.convert(codec="zstd"))
