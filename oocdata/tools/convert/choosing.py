"""What a conversion chooses: chunks, codec, and the boxes in which it reads and writes."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from oocdata.datasets.view import View
from oocdata.describe.content import exact_content
from oocdata.describe.fingerprints import dataset_fingerprint
from oocdata.errors import ArgumentError, UnsupportedDtypeError
from oocdata.explain import size
from oocdata.formats.opening import local_path
from oocdata.formats.patterns import shared_steps
from oocdata.formats.stored import is_url
from oocdata.index import as_count
from oocdata.memory import DEFAULT_MEMORY
from oocdata.threads import cores
from oocdata.tools.convert.carry import Carried, carried, refuse_dtype
from oocdata.tools.convert.steps import PIECE_BYTES, Steps, chunk_of, steps_of
from oocdata.tools.lines import Report, labelled
from oocdata.writers.chunking import CHUNK_BYTES, LARGEST, SHARD_BYTES, default_chunks
from oocdata.writers.codec import NAMES, NONE, Shuffled, as_codec
from oocdata.writers.create import chunked
from oocdata.writers.placement import Placement
from oocdata.writers.target import Target, format_by_suffix, target_key
from oocdata.writers.upload import Upload

__all__ = ["MEMORY", "Plan", "plan_of"]


@dataclass(frozen=True, slots=True)
class Plan(Report):
    """What a conversion will do, and why so."""

    view: View  # what is read
    target: Target  # what is written
    placement: Placement | Upload
    steps: Steps  # in which boxes
    carried: Carried  # attributes and the like
    chosen_chunks: bool  # they were not asked for
    memory_bytes: int  # what is taken at most, beside what the process has taken before
    reading_bytes: int  # what the process's memory for reading is lowered to; half for chunks
    verify: bool
    about: Mapping[str, str]  # what must be the same for a rerun to go on; empty: can't be told

    @property
    def nbytes(self) -> int:
        """Bytes of the array in memory."""
        return prod(self.target.shape) * self.target.dtype.itemsize

    def __str__(self) -> str:
        rows, element = self.target.shape[0], self.target.element
        what = f"{rows:,} rows of {element}" if element else f"{rows:,} numbers"
        stored = self.view.storage
        key = f", dataset {stored.key}" if stored.key else ""
        codec = f", {stored.codec}" if stored.codec != "none" else ""
        to_key = f", dataset {self.target.key}" if self.target.key else ""
        most = "at most " if self.target.codec != NONE else ""
        where = "disk" if self.placement.on_disk else "store"
        times = self.steps.decodes
        order = f"a stored chunk is decoded {times:.2f} times" if times > 1.004 else ""
        if self.steps.tiles is not None:
            order = (
                "stored across the rows: every stored chunk is read once, into a scratch file "
                f"({size(self.nbytes)}) from which rows are put together"
            )
        fields = {
            "from": f"{stored.path or 'memory'}{key}: {stored.format}, {stored.layout}{codec}",
            "to": f"{self.placement.path}{to_key}",
            "array": f"{what}, {self.target.dtype}, {size(self.nbytes)}",
            "chunks": self._chunks(),
            "codec": "" if self.target.format == "npy" else str(self.target.codec),
            "order": order,
            "memory": f"at most {size(self.memory_bytes)}",
            where: f"{most}{size(self.nbytes)}",
            "carried": self._carried(),
        }
        return "\n".join(labelled(label, text) for label, text in fields.items() if text)

    def to_json(self) -> dict[str, Any]:
        """Return everything, for ``json.dumps``."""
        target = self.target
        return {
            "source": self.view.storage.path,
            "key": self.view.storage.key,
            "destination": self.placement.path,
            "to_key": target.key,
            "format": target.format,
            "shape": target.shape,
            "dtype": str(target.dtype),
            "nbytes": self.nbytes,
            "chunks": target.chunks,
            "shards": target.shards,
            "chunks_why": self._chunks(),
            "codec": str(target.codec),
            "through_file": self.steps.tiles is not None,
            "decodes_per_chunk": self.steps.decodes,
            "memory_bytes": self.memory_bytes,
            "attributes": [name for name, _ in target.attributes],
            "dimension_names": target.dimension_names,
            "lost": self.carried.lost,
        }

    def _chunks(self) -> str:
        target = self.target
        if target.chunks is None:
            return "none: each row lies by itself, and is read alone"
        if not self.chosen_chunks:
            return target.storage
        rows, row_bytes = target.chunks[0], target.row_bytes
        if target.chunks[1:] != tuple(max(1, length) for length in target.element):
            why = f"a row is {size(row_bytes)}, too large for one chunk"
        else:
            together = f"{rows} together" if rows > 1 else "one by one"
            why = (
                f"whole rows, {together} ({size(rows * row_bytes)}): smaller chunks cost more "
                "each, larger ones decode more that a shuffled batch does not use"
            )
        if target.shards not in (None, target.chunks):
            why += "; many chunks a file, for fewer files"
        return f"{target.storage}: {why}"

    def _carried(self) -> str:
        target, lost = self.target, self.carried.lost
        parts = []
        if target.attributes:
            parts.append(f"attributes {', '.join(name for name, _ in target.attributes)}")
        if target.dimension_names:
            names = ", ".join(name or "(none)" for name in target.dimension_names)
            parts.append(f"dimensions {names}")
        if lost:
            why = f"{NAMES[target.format]} has no place for it, or it is not true of the result"
            packed = {"scale_factor", "add_offset"} & set(lost)
            stay = " (the numbers stay packed)" if packed else ""
            parts.append(f"NOT carried ({why}): {', '.join(lost)}{stay}")
        return "; ".join(parts)


MEMORY = DEFAULT_MEMORY
"""Bytes of memory for what is under way, by default."""

_READING = 64 << 20
"""Bytes of memory for reading: measured, more is no faster."""

_LIBRARIES = 96 << 20
"""What h5py and the codecs take, and allocators keep."""


def plan_of(
    view: View,
    destination: str,
    *,
    to_key: str | None = None,
    chunks: int | Sequence[int] | None = None,
    shards: int | Sequence[int] | None = None,
    codec: str | None = None,
    shuffle: Shuffled | None = None,
    memory: int = MEMORY,
    verify: bool = False,
    overwrite: bool = False,
) -> Plan:
    """Return what `oocdata.convert` would do with these arguments; nothing is written."""
    if view.dtype.hasobject:
        raise UnsupportedDtypeError(
            "rows must be of one length to be converted; these are bytes of unequal length. Make "
            "arrays of them in `.map`, and write those with ooc.create.",
            path=view.storage.path,
        )
    bound = as_count("memory", memory, at_least=1 << 20)
    destination = local_path(destination)
    kind = format_by_suffix(destination)
    _refuse_source(view, destination)
    of_source = view.storage.key
    if view.storage.episodes:
        of_source = shared_steps([key or "" for _, key in view.storage.part_names])
    key = target_key(kind, to_key, of_source if of_source != "/" else None)
    refuse_dtype(view, kind)
    where = Upload if is_url(destination) else Placement
    placement = where.of(destination, key, kind, overwrite)
    along = carried(view, kind)
    chunk = chunk_of(view)
    stored = view.storage.chunks
    decoded = 0 if stored is None else prod(stored) * view.source.dtype.itemsize
    # Each chunk is needed for one box, or two where a border cuts it: none is kept for longer.
    row_chunks = chunk[0] * prod(view.shape[1:]) * view.source.dtype.itemsize
    reading = min(bound, max(_READING, 4 * max(decoded, row_chunks)))
    way = as_codec(codec, shuffle, kind)
    # Two blocks are under way, one that is read and one that is written, and what is made of them.
    block_bytes = bound // 4
    chunk_shape, shard = chunked(
        kind,
        view.shape,
        view.dtype,
        way,
        chunks,
        shards,
        chunk_bytes=min(LARGEST, max(CHUNK_BYTES, bound // 16)),
        shard_bytes=min(SHARD_BYTES, block_bytes),
    )
    target = Target(
        format=kind,
        key=key,
        shape=view.shape,
        dtype=view.dtype,
        chunks=chunk_shape,
        shards=shard,
        codec=way,
        fill_value=along.fill_value,
        attributes=along.attributes,
        dimension_names=along.dimension_names,
    )
    # Where nothing is encoded, a piece of a row is as good as the row.
    itemsize = view.dtype.itemsize
    whole = default_chunks(view.shape, itemsize, largest=PIECE_BYTES)
    unit = target.unit if target.chunks is not None else (1, *whole[1:])
    steps = steps_of(view.shape, itemsize, chunk, unit, block_bytes)
    about = identity(view)
    if about:
        about["the result"] = f"{kind} {key} {target.storage}, {way}, {view.dtype} {view.shape}"
        about["the steps"] = f"{steps.blocks} {steps.tiles}"
        about["the file that it is added to"] = placement.before or "none"
    return Plan(
        view=view,
        target=target,
        placement=placement,
        steps=steps,
        carried=along,
        chosen_chunks=chunks is None,
        memory_bytes=_memory(
            target, steps, reading + 2 * cores() * decoded, verify, not placement.on_disk
        ),
        reading_bytes=reading,
        verify=verify,
        about=about,
    )


def _refuse_source(view: View, destination: str) -> None:
    """Refuse to write into what is read."""

    def place(path: str) -> str:
        return path.rstrip("/") if is_url(path) else os.path.realpath(path)

    storage, end = view.storage, place(destination)
    targets = (storage.opened or {}).get("target", storage.path)
    paths = [targets] if isinstance(targets, str) else list(targets or ())
    for path in (*paths, *(version.path for version in storage.files)):
        begin = place(path)
        short, long = sorted((begin, end), key=len)
        there = os.path.exists(begin) and os.path.exists(end)  # not where one is a URL
        if f"{long}/".startswith(f"{short}/") or (there and os.path.samefile(begin, end)):
            raise ArgumentError(
                f"what is written must lie apart from what is read; got '{path}' and "
                f"'{destination}'. Choose another name, and rename it afterwards."
            )


def _memory(target: Target, steps: Steps, reading: int, verify: bool, uploads: bool) -> int:
    """Return the bytes that a conversion takes at most, libraries included."""
    block = steps.blocks.most
    tile = block if steps.tiles is None else max(block, steps.tiles.most)
    # A box while the next one is read; its pieces; verifying, the block that it is compared with.
    boxes = 2 * tile + (tile // 2 if steps.tiles else 0) + (block if verify else 0)
    boxes += block if uploads else 0  # encoded, until the store has it
    encoding = 0 if target.chunks is None else 6 * prod(target.chunks) * cores()
    return (boxes + encoding) * target.dtype.itemsize + reading + _LIBRARIES


def identity(view: View) -> dict[str, str]:
    """Return what tells a view's content from any other; empty where nothing can.

    Files that an HDF5 dataset has its bytes from are not known at all.
    """
    storage = view.storage
    opened = storage.opened or {}
    writable = any(version.modified is None for version in storage.files)
    if not storage.files or not opened or opened.get("external") or writable:
        return {}
    return {
        "the source": exact_content(view.source),
        "what is read of it": dataset_fingerprint(view),
    }
