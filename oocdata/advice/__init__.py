"""Advise users what to change so that elements are read faster, and what the change gains.

`Reading` describes how a loader reads: its storage (`Source.storage`) and its cost
(`oocdata.cost`). Tools add their measurements (`Measured`), and print the sentences of `advise`.
"""

from __future__ import annotations

import shlex
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from math import inf
from os.path import basename

from oocdata.advice.reading import Reading, as_typed, reading_of, size
from oocdata.memory import cache_share
from oocdata.order.mixing import Mixing

__all__ = [
    "POOR_MIXING", "Advice", "Measured", "Reading", "advise", "as_typed", "mixing_share",
    "reading_of", "size",
]  # fmt: skip

_MUCH = 1.5
"""Smallest gain for which a change is advised."""

_LONG = 4.0
"""Smallest number of bytes decoded per byte used for which shorter chunks are advised."""

POOR_MIXING = 0.9
"""Share of a full shuffle's batch entropy below which batches hold too many neighbours."""

_CLOSE = 0.6
"""Share of a limit (decoder, disk) above which it is the bottleneck."""

_LARGE_REQUEST = 1 << 20
"""Bytes of a request whose transfer takes longer than its round trip."""

_SCATTERED = 6
"""Number of sequential requests for metadata for which rewriting the file is advised."""


@dataclass(frozen=True, slots=True)
class Advice:
    """A change that is advised."""

    #: "layout", "order", "chunks", "memory", "map", "codec", "disk", "link", "metadata" or "batch".
    kind: str
    text: str  # whole sentences, with figures
    command: str | None = None  # a shell command that makes the change

    def __str__(self) -> str:
        text = textwrap.fill(self.text, 80, initial_indent="- ", subsequent_indent="  ",
                             break_long_words=False, break_on_hyphens=False)  # fmt: skip
        return text if self.command is None else f"{text}\n    {self.command}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """Measurements of a tool, of which any may be missing; rates in elements per second."""

    # The highest by order ("sequential", "full shuffle", "block shuffle").
    rates: Mapping[str, float] = field(default_factory=dict)
    # Highest rates that "decoder" and "disk" allow.
    limits: Mapping[str, float] = field(default_factory=dict)
    map_share: float = 0.0  # share of a batch's time that is spent in functions given to `map`
    model_waits: bool = False  # whether the model waits for data, so that any speed-up helps
    # Bytes per request to a store, if the link is the bottleneck.
    request_bytes: int | None = None


def advise(reading: Reading, measured: Measured | None = None) -> tuple[Advice, ...]:
    """Return the changes that are worth advising, the most important first.

    Examples
    --------
    >>> from oocdata.engines.source import Storage
    >>> storage = Storage("HDF5", chunks=(100, 64), codec="gzip 4")
    >>> reading = Reading(
    ...     storage=storage, order="full shuffle", block_length=100, full_amplification=30.0
    ... )
    >>> [one.kind for one in advise(reading)]
    ['order', 'chunks']
    >>> print(advise(reading)[1].text)
    Chunks of 100 rows are long for shuffling. With 32 rows a full shuffle would decode about 10
    bytes for each byte used, not 30.
    """
    measured = measured or Measured()
    rules = (_of_function, _of_layout, _of_order, _of_chunks, _of_memory, _of_store, _of_limits)
    found = tuple(chain.from_iterable(rule(reading, measured) for rule in rules))
    if found or not measured.model_waits:
        return found
    if reading.storage.chunks is not None:
        return (Advice("codec", "Chunks are decoded: a faster codec or more cores help."),)
    text = "Larger batches cost less per element, and so do a smaller dtype or cropped rows."
    return (Advice("batch", text),)


def mixing_share(mixing: Mixing) -> float:
    """Return the share of a full shuffle's batch entropy that an order reaches."""
    full = mixing.full_shuffle_entropy
    return mixing.entropy / full if full > 0 else 1.0


def _bytes(number: float) -> str:
    return "1 byte" if round(number) == 1 else f"{number:,.0f} bytes"


def _of_function(reading: Reading, measured: Measured) -> Iterator[Advice]:
    if measured.map_share > 0.5:
        more = "more workers" if reading.workers else ".batches(…, workers=2)"
        yield Advice(
            "map",
            f"{measured.map_share:.0%} of a batch's time is your map function: make it faster, or "
            f"run it in worker processes ({more}).",
        )


def _of_layout(reading: Reading, measured: Measured) -> Iterator[Advice]:
    strides = reading.storage.strides
    if reading.span_bytes and strides is not None:
        yield Advice(
            "layout",
            f"The bytes of a row are not contiguous: {size(reading.row_bytes)} are spread over "
            f"{size(reading.span_bytes)} of the file. Rows along "
            f"axis={strides.index(max(strides))} lie in one piece; if you need other rows, rewrite "
            "the array with the sample axes first.",
            reading.convert(),
        )


def _of_order(reading: Reading, measured: Measured) -> Iterator[Advice]:
    """Yield advice about a full shuffle that decodes chunks again and again."""
    amplification, rates = reading.full_amplification, measured.rates
    full, block = rates.get("full shuffle", 0.0), rates.get("block shuffle", 0.0)
    is_faster = full > 0 and block >= _MUCH * full
    # If only the block shuffle was measured, the full shuffle may have been too slow.
    matters = reading.order == "full shuffle" or is_faster or (block and not full)
    if amplification < _MUCH or not matters:
        return
    text = f'A full shuffle (shuffle="global") decodes {_bytes(amplification)} for each byte used'
    if is_faster:
        text += f"; a block shuffle (shuffle=True) is {block / full:,.1f} times as fast."
    elif reading.block_amplification * _MUCH <= amplification:
        text += "; a block shuffle (shuffle=True) decodes each chunk once."
    elif amplification < _MUCH * reading.crop_amplification:
        return  # the rest of the chunks is not used
    else:
        text += (
            f", because only {size(cache_share())} of decoded chunks are cached: ooc.set_memory "
            "sets the limit."
        )
    yield Advice("order", text)


def _of_chunks(reading: Reading, measured: Measured) -> Iterator[Advice]:
    """Yield advice about chunks that cut rows, or are larger than what is read of them."""
    pieces, rows = reading.chunks_per_row, reading.chunk_rows
    if reading.span_bytes:  # there are no chunks
        return
    if reading.crop_amplification >= _MUCH:
        yield Advice(
            "chunks",
            "Elements are cut out of larger chunks: "
            f"{reading.crop_amplification:.1f} bytes are decoded for each byte of an element. "
            "Chunks as large as an element along its own axes would help.",
        )
    elif pieces > 1 and rows > 1:
        by_default = ", as h5py's own chunks do" if reading.storage.format == "HDF5" else ""
        yield Advice(
            "chunks",
            f"Chunks of {reading.storage.chunks} cut each row into {pieces:,} pieces{by_default}: "
            f"for one row {pieces:,} chunks are decoded, which hold {rows:,} rows. After `oocdata "
            "convert`, each row is in 1 chunk.",
            reading.convert(chunked=True),
        )
    else:
        yield from _of_long_chunks(reading)


def _of_long_chunks(reading: Reading) -> Iterator[Advice]:
    """Yield advice to shorten chunks or to mix more of them, if the order needs it."""
    length, rows, mixing = reading.block_length, reading.fitting_rows, reading.mixing
    costly = reading.order == "full shuffle" and reading.full_amplification >= _LONG
    mixes_poorly = mixing is not None and mixing_share(mixing) < POOR_MIXING
    if length < 2 * rows:
        if mixes_poorly:
            yield Advice("order", "Batches hold neighbours: shuffle=True mixes more blocks.")
        return
    text = f"Chunks of {length:,} rows are long for shuffling."
    if costly:
        fewer = max(1.0, reading.full_amplification * rows / length)
        text += (
            f" With {rows:,} rows a full shuffle would decode about {_bytes(fewer)} for each byte "
            f"used, not {reading.full_amplification:,.0f}."
        )
    if mixes_poorly and mixing is not None:
        text += (
            f" Batches hold neighbours ({mixing.entropy:.1f} bits of batch entropy, "
            f"{mixing.full_shuffle_entropy:.1f} in a full shuffle): more chunks of {rows:,} rows "
            "would be mixed."
        )
    if costly or mixes_poorly:
        yield Advice("chunks", text, reading.convert(chunks=rows))


def _of_memory(reading: Reading, measured: Measured) -> Iterator[Advice]:
    """Yield advice to cache more chunks, or to mix fewer, if they are decoded more than once."""
    decodings = reading.amplification / max(1.0, reading.crop_amplification)
    if reading.order == "full shuffle" or reading.block_length < 2 or decodings < _MUCH:
        return
    text = (
        f"Each chunk is decoded {decodings:.1f} times, because only {size(cache_share())} of "
        "decoded chunks are cached. ooc.set_memory raises the limit"
    )
    # A half, because the next blocks are decoded while others are in use.
    few = cache_share() // 2 // (reading.block_length * reading.row_bytes)
    if few and reading.order == "block shuffle":
        text += (
            f"; shuffle=ooc.BlockShuffle(dataset.blocks, {few}) mixes so few blocks that they fit"
        )
    yield Advice("memory", f"{text}.")


def _of_store(reading: Reading, measured: Measured) -> Iterator[Advice]:
    """Yield advice about the link to a store: fewer and larger requests, or closer bytes."""
    storage, fetched = reading.storage, measured.request_bytes
    if fetched is not None:
        text, command = "", None
        if fetched < _LARGE_REQUEST:
            text = (
                f"Requests fetch only {size(fetched)} each, so round trips dominate: a copy in "
                "larger chunks needs fewer of them. "
            )
            rows = reading.chunk_rows * (_LARGE_REQUEST // max(1, fetched))
            is_chunked = storage.chunks is not None
            command = reading.convert(chunks=rows) if is_chunked else reading.convert(chunked=True)
        text += (
            "What would help: a cache folder for later epochs (cache=… of ooc.open), more memory, "
            "for more bytes in flight (ooc.set_memory), or a machine nearer to the store."
        )
        yield Advice("link", text, command)
    if storage.is_remote and storage.format.startswith("HDF5"):
        from oocdata.stores.blocks import BLOCK, cached_block_count
        from oocdata.stores.versions import ObjectVersion

        versions = (file for file in storage.files if isinstance(file, ObjectVersion))
        blocks = max(map(cached_block_count, versions))
        name = basename(storage.files[0].path)
        if blocks >= _SCATTERED:
            yield Advice(
                "metadata",
                f"The file's metadata is scattered over {blocks} blocks of {size(BLOCK)}, fetched "
                "one after the other. A copy with its metadata together in pages (h5repack -S "
                "PAGE), or as Zarr (oocdata convert), opens in a few requests.",
                shlex.join(["h5repack", "-S", "PAGE", "-G", "4194304", name, f"paged-{name}"]),
            )


def _of_limits(reading: Reading, measured: Measured) -> Iterator[Advice]:
    """Yield advice about the decoder and the disk, if one of them is the bottleneck."""
    limits, codec = measured.limits, reading.storage.codec
    decoder, disk = limits.get("decoder", inf), limits.get("disk", inf)
    sequential = measured.rates.get("sequential", 0.0)
    best = max(sequential, measured.rates.get("block shuffle", 0.0))
    if codec != "none" and best >= _CLOSE * decoder:
        yield Advice(
            "codec",
            f"Decoding ({codec}) is the limit: {min(best / decoder, 1):.0%} of what it allows is "
            "used. A faster codec, none at all, or more cores would help.",
            reading.convert(codec="blosc-lz4" if "Zarr" in reading.storage.format else "none"),
        )
    share = sequential / disk  # above 1 if bytes came from the page cache
    if disk <= decoder and _CLOSE <= share <= 1:
        text = f"The disk is the limit: sequential uses {share:.0%} of what it gives. "
        if codec != "none":
            yield Advice("disk", f"{text}A faster disk helps, or memory for the whole file.")
        else:
            text += "A faster disk helps, or compression, if the data compress well."
            yield Advice("disk", text, reading.convert(codec="gzip"))
