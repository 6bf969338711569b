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

__all__ = ["Advice", "Measured", "Reading", "advise", "as_typed", "reading_of", "size"]

_MUCH = 1.5
"""Smallest gain for which a change is advised."""

_LONG = 4.0
"""Smallest number of bytes decoded per byte used for which shorter chunks are advised."""

_CLOSE = 0.6
"""Share of the decoder's rate above which it is the bottleneck."""

_LARGE_REQUEST = 1 << 20
"""Bytes of a request whose transfer takes longer than its round trip."""

_SCATTERED = 6
"""Number of sequential requests for metadata for which rewriting the file is advised."""


@dataclass(frozen=True, slots=True)
class Advice:
    """A change that is advised."""

    kind: str  # "map", "layout", "order", "chunks", "link", "metadata" or "codec"
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
    decoder: float = inf  # the highest rate that decoding allows
    map_share: float = 0.0  # share of a batch's time that is spent in functions given to `map`
    # Bytes per request to a store, if the link is the bottleneck.
    request_bytes: int | None = None


def advise(reading: Reading, measured: Measured | None = None) -> tuple[Advice, ...]:
    """Return the changes that are worth advising, the most important first."""
    measured = measured or Measured()
    rules = (_of_function, _of_layout, _of_order, _of_chunks, _of_store, _of_decoder)
    return tuple(chain.from_iterable(rule(reading, measured) for rule in rules))


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
    elif reading.has_block_shuffle:
        text += "; a block shuffle (shuffle=True) decodes each chunk once."
    else:
        text += (
            f", because only {size(cache_share())} of decoded chunks are cached: ooc.set_memory "
            "sets the limit."
        )
    yield Advice("order", text)


def _of_chunks(reading: Reading, measured: Measured) -> Iterator[Advice]:
    """Yield advice about chunks that cut rows, or are too long for a full shuffle."""
    pieces, rows, fitting = reading.chunks_per_row, reading.chunk_rows, reading.fitting_rows
    amplification, length = reading.full_amplification, reading.block_length
    if reading.span_bytes:  # there are no chunks
        return
    if pieces > 1 and rows > 1:
        by_default = ", as h5py's own chunks do" if reading.storage.format == "HDF5" else ""
        yield Advice(
            "chunks",
            f"Chunks of {reading.storage.chunks} cut each row into {pieces:,} pieces{by_default}: "
            f"for one row {pieces:,} chunks are decoded, which hold {rows:,} rows. After `oocdata "
            "convert`, each row is in 1 chunk.",
            reading.convert(chunked=True),
        )
    elif reading.order == "full shuffle" and amplification >= _LONG and length >= 2 * fitting:
        fewer = max(1.0, amplification * fitting / length)
        yield Advice(
            "chunks",
            f"Chunks of {length:,} rows are long for shuffling. With {fitting:,} rows a full "
            f"shuffle would decode about {_bytes(fewer)} for each byte used, not "
            f"{amplification:,.0f}.",
            reading.convert(chunks=fitting),
        )


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


def _of_decoder(reading: Reading, measured: Measured) -> Iterator[Advice]:
    """Yield advice about the decoder, if it is the bottleneck."""
    codec, rates = reading.storage.codec, measured.rates
    share = max(rates.get("sequential", 0.0), rates.get("block shuffle", 0.0)) / measured.decoder
    if codec != "none" and share >= _CLOSE:
        yield Advice(
            "codec",
            f"Decoding ({codec}) is the limit: {min(share, 1):.0%} of what it allows is used. A "
            "faster codec, none at all, or more cores would help.",
            reading.convert(codec="blosc-lz4" if "Zarr" in reading.storage.format else "none"),
        )
