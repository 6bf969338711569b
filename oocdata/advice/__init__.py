"""The one place that gives advice: what to change so that elements come faster, and what it gains.

`Reading` describes how a loader reads: its storage (`Source.storage`) and its cost
(`oocdata.cost`). Tools add what they have measured, and print the sentences of `advise`.
"""

from __future__ import annotations

import shlex
import textwrap
from collections.abc import Mapping, Sequence
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
    layout = _layout(reading)
    found = [_map(reading, measured), layout]
    if layout is None:  # blocks of rows that lie apart are no chunks of the file
        chunks = _cut(reading) or _chunks(reading)
        found += [_order(reading, measured), chunks, _unused(reading)]
    found += [_link(reading, measured), _metadata(reading)]
    found += [_codec(reading, measured), _disk(reading, measured)]
    made = [one for one in found if one is not None]
    return tuple(made or ([_otherwise(reading)] if measured.waits else []))


def mixing_share(mixed: Mixing) -> float:
    """Return the share of a full shuffle's batch entropy that an order reaches."""
    full = mixed.full_shuffle_entropy
    return mixed.entropy / full if full > 0 else 1.0


def _map(reading: Reading, measured: Measured) -> Advice | None:
    """Advise worker processes for a slow function."""
    if measured.mapped <= 0.5:
        return None
    text = f"{measured.mapped:.0%} of a batch's time is your map function: "
    if reading.workers:
        return Advice("map", f"{text}make it faster, or take more than {reading.workers} workers.")
    return Advice("map", f"{text}.batches(…, workers=2) runs it in other processes.")


def _layout(reading: Reading) -> Advice | None:
    """Advise other sample axes where the bytes of a row lie apart."""
    strides = reading.storage.strides
    if not reading.spread or strides is None:
        return None
    text = (
        f"The bytes of a row lie apart: {size(reading.row_bytes)} are spread over "
        f"{size(reading.spread)} of the file"
    )
    if reading.together > 1:
        text += f", so {reading.together:,} rows are read together"
    text += (
        f". Rows along axis={strides.index(max(strides))} lie in one piece; if those are not what "
        "you want, write the array again with the sample axes first."
    )
    return Advice("layout", text, reading.convert())


def _order(reading: Reading, measured: Measured) -> Advice | None:
    """Advise a block shuffle where a full one decodes chunks again and again."""
    if reading.full < _MUCH:
        return None
    full, block = measured.best("full shuffle"), measured.best("block shuffle")
    text = f'A full shuffle (shuffle="global") decodes {_bytes(reading.full)} for each byte used'
    if full and block >= _MUCH * full:
        times = block / full
        text += f" and reaches {full:,.0f} elements/s; a block shuffle (shuffle=True) is "
        return Advice("order", f"{text}{times:,.1f} times as fast.")
    if reading.order == "full shuffle" or (block and not full):  # too slow to be measured
        return Advice("order", f"{text}; a block shuffle (shuffle=True) decodes each chunk once.")
    return None


def _bytes(number: float) -> str:
    return "1 byte" if round(number) == 1 else f"{number:,.0f} bytes"


def _cut(reading: Reading) -> Advice | None:
    """Advise chunks of whole rows where chunks of several rows cut each row, as h5py's own do."""
    pieces, held = reading.pieces, reading.chunk_rows
    if pieces < 2 or held < 2 or reading.unused >= _MUCH:
        return None
    text = (
        f"Chunks of {reading.storage.chunks} cut each row into {pieces:,} pieces, as h5py's own "
        f"chunks do: for one row {pieces:,} chunks are decoded, which hold {held:,} rows. Written "
        "again by `oocdata convert`, each row lies in 1 chunk."
    )
    return Advice("chunks", text, reading.convert(chunked=True))


def _chunks(reading: Reading) -> Advice | None:
    """Advise shorter chunks where they are long for the order."""
    rows, mixed = reading.fitting_rows, reading.mixing
    costly = reading.order == "full shuffle" and reading.full >= _LONG
    large = _again(reading) >= _MUCH
    poor = mixed is not None and mixing_share(mixed) < POOR_MIXING
    if poor and reading.together < 2 * rows:
        return Advice("order", "Batches hold neighbours: shuffle=True mixes more blocks.")
    if reading.together < 2 * rows or not (costly or large or poor):
        return None
    text = f"Chunks of {reading.together:,} rows are long for shuffling."
    if costly:
        fewer = max(1.0, reading.full * rows / reading.together)
        text += (
            f" With {rows:,} rows a full shuffle would decode about {_bytes(fewer)} for each byte "
            f"used, not {reading.full:,.0f}."
        )
    if large:
        text += (
            f" Each is decoded {_again(reading):.1f} times, because only {size(cache_share())} of "
            "decoded chunks are cached: ooc.set_memory says how many."
        )
    if poor and mixed is not None:
        text += (
            f" Batches hold neighbours ({mixed.entropy:.1f} bits of batch entropy, "
            f"{mixed.full_shuffle_entropy:.1f} in a full shuffle): of chunks of {rows:,} rows more "
            "are mixed."
        )
    return Advice("chunks", text, reading.convert(chunks=rows))


def _unused(reading: Reading) -> Advice | None:
    """Advise smaller chunks where elements are cut out of them."""
    if reading.unused < _MUCH:
        return None
    return Advice(
        "chunks",
        f"Elements are cut out of larger chunks: {reading.unused:.1f} bytes are decoded for each "
        "byte of an element. Chunks as large as an element along its own axes would help.",
    )


def _again(reading: Reading) -> float:
    """Return how often each chunk is decoded in an order that should decode it once."""
    if reading.together == 1 or reading.order == "full shuffle":
        return 1.0
    return reading.amplification / max(1.0, reading.unused)


def _codec(reading: Reading, measured: Measured) -> Advice | None:
    """Advise a faster codec where everything else waits for the decoder."""
    decoder, codec = measured.limits.get("decoder", inf), reading.storage.codec
    best = max(measured.best("sequential"), measured.best("block shuffle"))
    if codec == "none" or best < _CLOSE * decoder or measured.limits["memory"] < 2 * decoder:
        return None
    return Advice(
        "codec",
        f"Decoding ({codec}) is the limit: {min(best / decoder, 1):.0%} of what it allows is used. "
        "A faster codec (lz4, zstd) or more cores would help.",
        reading.convert(codec="blosc-lz4" if "Zarr" in reading.storage.format else "lz4"),
    )


def _disk(reading: Reading, measured: Measured) -> Advice | None:
    """Advise a faster disk, or fewer bytes, where everything else waits for the disk."""
    disk = measured.limits.get("disk", inf)
    share = measured.best("sequential") / disk
    others = min(measured.limits.get(name, inf) for name in ("memory", "decoder"))
    if disk > others or not _CLOSE <= share <= 1:  # above 1 the bytes did not come from the disk
        return None
    text = f"The disk is the limit: sequential uses {share:.0%} of what it gives. A faster disk "
    if reading.storage.codec != "none":
        return Advice("disk", f"{text}helps, or memory for the whole file.")
    text += "helps, or compression, if the data compress well."
    return Advice("disk", text, reading.convert(codec="zstd"))


def _link(reading: Reading, measured: Measured) -> Advice | None:
    """Advise fewer and larger requests, or bytes nearer by, where all waits for the link."""
    if measured.fetched is None:
        return None
    nearer = (
        "What would help: a cache folder for later epochs (cache=… of ooc.open), more memory, for "
        "more bytes under way (ooc.set_memory), or a machine nearer to the store."
    )
    if measured.fetched >= _LARGE_REQUEST:
        return Advice("link", nearer)
    text = f"Requests bring {size(measured.fetched)} each, which the way there and back outweighs. "
    if reading.storage.chunks is None:
        text += f"A copy in chunks is fetched in larger ranges, and shuffled by blocks. {nearer}"
        return Advice("link", text, reading.convert(chunked=True))
    rows = max(1, reading.chunk_rows * (_LARGE_REQUEST // max(1, measured.fetched)))
    return Advice("link", f"{text}Larger chunks make fewer. {nearer}", reading.convert(chunks=rows))


def _metadata(reading: Reading) -> Advice | None:
    """Advise to gather metadata that lie scattered over an HDF5 file in a store."""
    files = reading.storage.files
    if not reading.storage.is_remote or not reading.storage.format.startswith("HDF5"):
        return None
    from oocdata.stores.blocks import BLOCK
    from oocdata.stores.files import of_version
    from oocdata.stores.versions import ObjectVersion

    blocks = max(of_version(one).blocks for one in files if isinstance(one, ObjectVersion))
    if blocks < _SCATTERED:
        return None
    name = basename(files[0].path)
    return Advice(
        "metadata",
        f"The file's metadata lie scattered over {blocks} blocks of {size(BLOCK)}, fetched one "
        "after the other. A copy with its metadata together in pages (h5repack -S PAGE), or as "
        "Zarr (oocdata convert), opens in a few requests.",
        shlex.join(["h5repack", "-S", "PAGE", "-G", "4194304", name, f"paged-{name}"]),
    )


def _otherwise(reading: Reading) -> Advice:
    """Return what helps a model that waits where nothing stands out."""
    if reading.storage.chunks is not None:
        return Advice("codec", "Chunks are decoded: a faster codec or more cores help.")
    if reading.batch_size <= _SMALL_BATCH:
        return Advice("batch", "Larger batches cost less an element (see `oocdata bench`).")
    return Advice("batch", "Bytes are copied as fast as can be: a smaller dtype or cut rows help.")
