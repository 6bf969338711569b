"""Plan a conversion: its chunks, codec and memory, and the boxes in which it reads and writes."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np

from oocdata.advice import size
from oocdata.cost import chunks_of
from oocdata.datasets.dataset import Draw
from oocdata.datasets.view import View
from oocdata.describe.content import exact_content
from oocdata.describe.fingerprints import dataset_fingerprint
from oocdata.errors import ArgumentError, UnsupportedDtypeError
from oocdata.formats.opening import local_path
from oocdata.formats.paths import is_url
from oocdata.formats.patterns import common_ending
from oocdata.memory import cache_share, memory_limit
from oocdata.threads import cores
from oocdata.tools.convert.metadata import refuse_dtype, target_for
from oocdata.tools.passes import block_sizes, chunk_rows
from oocdata.tools.report import Report, counted, fields_text, rows_text
from oocdata.writers.placement import Placement
from oocdata.writers.target import (
    CHUNK_BYTES,
    LARGEST,
    NAMES,
    NONE,
    SHARD_BYTES,
    Target,
    as_codec,
    format_by_suffix,
    target_key,
    with_chunks,
)
from oocdata.writers.upload import Upload


@dataclass(frozen=True, slots=True)
class Plan(Report):
    """The plan of a conversion, with reasons."""

    view: View  # to read
    target: Target  # to write
    placement: Placement | Upload
    chosen_chunks: bool  # whether the chunks were chosen here, not by the caller
    decodes: float  # about how often a stored chunk is decoded
    memory_bytes: int  # the most memory that the conversion adds to that of the process
    verify: bool
    about: Mapping[str, str]  # must be equal for a run to be resumed; empty: can't be resumed

    @property
    def nbytes(self) -> int:
        """Bytes of the array in memory."""
        return prod(self.target.shape) * self.target.dtype.itemsize

    def __str__(self) -> str:
        stored = self.view.storage
        key = f", dataset {stored.key}" if stored.key else ""
        codec = f", {stored.codec}" if stored.codec != "none" else ""
        to_key = f", dataset {self.target.key}" if self.target.key else ""
        before = "" if self.target.codec == NONE else " before compression"
        where = "disk" if self.placement.on_disk else "store"
        order = (
            f"chunks span many rows: each is decoded about {self.decodes:,.0f} times. More memory "
            "needs fewer times (ooc.set_memory, or OOCDATA_MEMORY in the environment)"
        )
        array = rows_text(self.target.shape, self.target.dtype)
        source = f"{stored.path or 'memory'}{key}: {stored.format}, {stored.layout}{codec}"
        return fields_text(
            [
                ("from", source),
                ("to", f"{self.placement.path}{to_key}"),
                ("array", f"{array}, {size(self.nbytes)}"),
                ("chunks", self._chunks()),
                ("codec", "" if self.target.format == "npy" else str(self.target.codec)),
                ("order", order if self.decodes > 1 else ""),
                ("memory", f"at most {size(self.memory_bytes)}"),
                (where, f"{size(self.nbytes)}{before}"),
                ("metadata", self._metadata_text()),
            ]
        )

    def to_json(self) -> dict[str, Any]:
        """Return a dict for ``json.dumps``."""
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
            "decodes_per_chunk": self.decodes,
            "memory_bytes": self.memory_bytes,
            "attributes": [name for name, _ in target.attributes],
            "dimension_names": target.dimension_names,
            "lost": target.lost,
        }

    def _chunks(self) -> str:
        target = self.target
        if target.chunks is None:
            return "none: each row is stored and read by itself"
        if not self.chosen_chunks:
            return target.storage
        why = (
            f"whole rows, about {size(CHUNK_BYTES)}: smaller chunks cost more overhead, larger "
            "ones decode more rows that a shuffled batch does not use"
        )
        if target.chunks[1:] != tuple(max(1, length) for length in target.element):
            why = f"a row is {size(target.row_bytes)}, too large for one chunk"
        return f"{target.storage}: {why}"

    def _metadata_text(self) -> str:
        target, lost = self.target, self.target.lost
        parts = []
        if target.attributes:
            parts.append(f"attributes {', '.join(name for name, _ in target.attributes)}")
        if target.dimension_names:
            names = ", ".join(name or "(none)" for name in target.dimension_names)
            parts.append(f"dimensions {names}")
        if lost:
            why = f"{NAMES[target.format]} can't hold it, or it does not apply to the result"
            packed = {"scale_factor", "add_offset"} & set(lost)
            stay = " (the numbers stay packed)" if packed else ""
            parts.append(f"NOT carried ({why}): {', '.join(lost)}{stay}")
        return "; ".join(parts)


_LIBRARIES = 96 << 20
"""Bytes that h5py and the codecs take, and that allocators keep."""


def plan_of(
    view: View,
    destination: str,
    *,
    to_key: str | None = None,
    chunks: int | Sequence[int] | None = None,
    codec: str | None = None,
    verify: bool = False,
    overwrite: bool = False,
) -> Plan:
    """Return the plan of `oocdata.convert` with these arguments; write nothing."""
    if view.dtype.hasobject:
        raise UnsupportedDtypeError(
            "rows must be of one length to be converted; these are bytes of unequal length. Turn "
            "them into arrays in `.map`, and write the arrays with ooc.create.",
            path=view.storage.path,
        )
    bound, destination = memory_limit(), local_path(destination)
    kind = format_by_suffix(destination)
    _check_apart(view, destination)
    source_key = view.storage.key
    if view.storage.episodes:
        source_key = common_ending([key or "" for _, key in view.storage.part_names])
    key = target_key(kind, to_key, source_key if source_key != "/" else None)
    refuse_dtype(view, kind)
    placement_type = Upload if is_url(destination) else Placement
    placement = placement_type.of(destination, key, kind, overwrite)
    target = with_chunks(
        target_for(view, kind, key, as_codec(codec, kind)),
        chunks,
        chunk_bytes=min(LARGEST, max(CHUNK_BYTES, bound // 16)),
        shard_bytes=min(SHARD_BYTES, bound // 4),
    )
    stored = replace(view, dtype=view.source.dtype)
    rows, threads, ahead = block_sizes(stored, target.unit[0])
    chunk = chunk_rows(stored).length
    first = stored.requests(np.arange(min(1, len(stored))), Draw())
    cached = chunk <= rows or sum(chunks_of(first).values()) <= cache_share()
    block = rows * max(view.spec.nbytes, stored.spec.nbytes)
    if 2 * block > bound:
        raise ArgumentError(
            f"memory must hold {counted(rows, 'whole row')} twice, {size(2 * block)}, to "
            f"write them; its limit is {size(bound)}. Raise it (ooc.set_memory, or OOCDATA_MEMORY "
            "in the environment), or take other axes as rows: `axis`."
        )
    encoding = 6 * cores() * prod(target.chunks or (0,)) * view.dtype.itemsize
    result = f"{kind} {key} {target.storage}, {target.codec}, {view.dtype} {view.shape}"
    return Plan(
        view=view,
        target=target,
        placement=placement,
        chosen_chunks=chunks is None,
        decodes=1.0 if cached else chunk / rows,
        # For reading; blocks, each with a copy while a thread works on it; and encoding.
        memory_bytes=bound * 3 // 4 + (ahead + 1 + 2 * threads) * block + encoding + _LIBRARIES,
        verify=verify,
        about=_identity(view, result),
    )


def _check_apart(view: View, destination: str) -> None:
    """Raise if the destination is the source, or one contains the other."""

    def full_path(path: str) -> str:
        return path.rstrip("/") if is_url(path) else os.path.realpath(path)

    storage, target = view.storage, full_path(destination)
    opened = (storage.opened or {}).get("target", storage.path)
    paths = [opened] if isinstance(opened, str) else list(opened or ())
    for path in (*paths, *(version.path for version in storage.files)):
        source = full_path(path)
        short, long = sorted((source, target), key=len)
        both_exist = os.path.exists(source) and os.path.exists(target)  # false for URLs
        if f"{long}/".startswith(f"{short}/") or (both_exist and os.path.samefile(source, target)):
            raise ArgumentError(
                f"the destination must be apart from the source; got '{destination}' and "
                f"'{path}'. Choose another name, and rename it afterwards."
            )


def _identity(view: View, result: str) -> dict[str, str]:
    """Return what must be the same in a resumed run; empty if a change could not be detected.

    Changes of external files of an HDF5 dataset are not detected.
    """
    storage = view.storage
    opened = storage.opened or {}
    is_writable = any(version.modified is None for version in storage.files)
    if not storage.files or not opened or opened.get("external") or is_writable:
        return {}
    return {
        "the source": exact_content(view.source),
        "what is read of it": dataset_fingerprint(view),
        "the result": result,
    }
