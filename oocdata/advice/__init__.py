"""Advise users what to change so that elements are read faster, and what the change gains.

`Reading` describes how a loader reads: its storage (`Source.storage`) and its cost
(`oocdata.cost`). Tools add their measurements (`Measured`), and print the sentences of `advise`.
"""

from __future__ import annotations

import shlex
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
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

_SMALL_BATCH = 256
"""Largest batch size for which larger batches are advised."""

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
    without_workers: float = 0.0  # the rate without worker processes, if it is higher; else 0
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
    found = (
        *_of_order(reading, measured),
        *_of_memory(reading),
        *_of_store(reading, measured),
        *_of_limits(reading, measured),
    )
    if found or not measured.model_waits:
        return found
    if reading.storage.chunks is not None:
        return (Advice("codec", "Chunks are decoded: a faster codec or more cores help."),)
    text = "Bytes are copied as fast as possible: a smaller dtype or cropped rows help."
    if reading.batch_size <= _SMALL_BATCH:
        text = "Larger batches cost less per element (see `oocdata bench`)."
    return (Advice("batch", text),)


def mixing_share(mixing: Mixing) -> float:
    """Return the share of a full shuffle's batch entropy that an order reaches."""
    full = mixing.full_shuffle_entropy
    return mixing.entropy / full if full > 0 else 1.0


def _bytes(number: float) -> str:
    return "1 byte" if round(number) == 1 else f"{number:,.0f} bytes"


def _of_order(reading: Reading, measured: Measured) -> Iterator[Advice]:
    """Yield advice about mapped functions, axes, order and chunks."""
    if measured.without_workers:
        text = f"Without worker processes (workers=0) it is {measured.without_workers:,.0f} "
        yield Advice("map", f"{text}elements/s: functions that take so little time need none.")
    elif measured.map_share > 0.5:
        text = f"{measured.map_share:.0%} of a batch's time is your map function: "
        if reading.workers:
            text += f"make it faster, or take more than {reading.workers} workers."
        else:
            text += ".batches(…, workers=2) runs it in other processes."
        yield Advice("map", text)
    strides = reading.storage.strides
    if reading.span_bytes and strides is not None:
        text = (
            f"The bytes of a row are not contiguous: {size(reading.row_bytes)} are spread over "
            f"{size(reading.span_bytes)} of the file"
        )
        if reading.block_length > 1:
            text += f", so {reading.block_length:,} rows are read together"
        text += (
            f". Rows along axis={strides.index(max(strides))} lie in one piece; if you need other "
            "rows, rewrite the array with the sample axes first."
        )
        yield Advice("layout", text, reading.convert())
        return  # there are no chunks
    amplification = reading.full_amplification
    decodings = amplification / max(1.0, reading.crop_amplification)
    full = measured.rates.get("full shuffle", 0.0)
    block = measured.rates.get("block shuffle", 0.0)
    if amplification >= _MUCH:
        text = (
            f'A full shuffle (shuffle="global") decodes {_bytes(amplification)} for each byte used'
        )
        if full and block >= _MUCH * full:
            text += f" and reaches {full:,.0f} elements/s; a block shuffle (shuffle=True) is "
            yield Advice("order", f"{text}{block / full:,.1f} times as fast.")
        elif reading.block_amplification * _MUCH > amplification:
            if decodings >= _MUCH:  # else the rest of the chunks is not used
                text += f", because only {size(cache_share())} of decoded chunks are cached: "
                yield Advice("order", f"{text}ooc.set_memory sets the limit.")
        elif reading.order == "full shuffle" or (block and not full):
            # If only the block shuffle was measured, the full shuffle may have been too slow.
            text += "; a block shuffle (shuffle=True) decodes each chunk once."
            yield Advice("order", text)
    pieces, rows = reading.chunks_per_row, reading.chunk_rows
    if pieces > 1 and rows > 1 and reading.crop_amplification < _MUCH:
        by_default = ", as h5py's own chunks do" if reading.storage.format == "HDF5" else ""
        text = (
            f"Chunks of {reading.storage.chunks} cut each row into {pieces:,} pieces{by_default}: "
            f"for one row {pieces:,} chunks are decoded, which hold {rows:,} rows. "
            "After `oocdata convert`, each row is in 1 chunk."
        )
        yield Advice("chunks", text, reading.convert(chunked=True))
    else:
        yield from _of_chunk_rows(reading)
    if reading.crop_amplification >= _MUCH:
        yield Advice(
            "chunks",
            "Elements are cut out of larger chunks: "
            f"{reading.crop_amplification:.1f} bytes are decoded for each byte of an element. "
            "Chunks as large as an element along its own axes would help.",
        )


def _of_chunk_rows(reading: Reading) -> Iterator[Advice]:
    """Yield advice to shorten chunks or to mix more of them, if the order needs it."""
    rows, mixing = reading.fitting_rows, reading.mixing
    costly = reading.order == "full shuffle" and reading.full_amplification >= _LONG
    mixes_poorly = mixing is not None and mixing_share(mixing) < POOR_MIXING
    if mixes_poorly and reading.block_length < 2 * rows:
        yield Advice("order", "Batches hold neighbours: shuffle=True mixes more blocks.")
    if reading.block_length < 2 * rows or not (costly or mixes_poorly):
        return
    text = f"Chunks of {reading.block_length:,} rows are long for shuffling."
    if costly:
        fewer = max(1.0, reading.full_amplification * rows / reading.block_length)
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
    yield Advice("chunks", text, reading.convert(chunks=rows))


def _of_memory(reading: Reading) -> Iterator[Advice]:
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
    storage = reading.storage
    if measured.request_bytes is not None:
        closer = (
            "What would help: a cache folder for later epochs (cache=… of ooc.open), more memory, "
            "for more bytes in flight (ooc.set_memory), or a machine nearer to the store."
        )
        text = f"Requests fetch only {size(measured.request_bytes)} each, so round trips dominate. "
        if measured.request_bytes >= _LARGE_REQUEST:
            yield Advice("link", closer)
        elif storage.chunks is None:
            text += "A copy in chunks is fetched in larger ranges, and shuffled by blocks. "
            yield Advice("link", text + closer, reading.convert(chunked=True))
        else:
            text += "Larger chunks need fewer requests. "
            rows = max(1, reading.chunk_rows * (_LARGE_REQUEST // max(1, measured.request_bytes)))
            yield Advice("link", text + closer, reading.convert(chunks=rows))
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
            "used. A faster codec (lz4, zstd) or more cores would help.",
            reading.convert(codec="blosc-lz4" if "Zarr" in reading.storage.format else "lz4"),
        )
    share = sequential / disk  # above 1 if bytes came from the page cache
    if disk <= decoder and _CLOSE <= share <= 1:
        text = (
            f"The disk is the limit: sequential uses {share:.0%} of what it gives. A faster disk "
        )
        if codec != "none":
            yield Advice("disk", f"{text}helps, or memory for the whole file.")
        else:
            text += "helps, or compression, if the data compress well."
            yield Advice("disk", text, reading.convert(codec="zstd"))
