"""What a conversion chooses: chunks, codec, and the boxes in which it reads and writes."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from math import prod
from typing import Any

import numpy as np
from numpy.lib import format as npy_format

from oocdata.datasets.view import View
from oocdata.engines.dtypes import is_small_float
from oocdata.errors import ArgumentError, UnsupportedDtypeError
from oocdata.formats.opening import local_path
from oocdata.formats.patterns import shared_steps
from oocdata.formats.stored import is_url
from oocdata.index import as_count
from oocdata.memory import DEFAULT_MEMORY
from oocdata.threads import cores
from oocdata.tools.convert.carry import carried
from oocdata.tools.convert.journal import identity
from oocdata.tools.convert.plan import Plan
from oocdata.tools.convert.reading import PIECE_BYTES, chunk_of
from oocdata.tools.convert.steps import Steps, steps_of
from oocdata.writers.chunking import CHUNK_BYTES, LARGEST, SHARD_BYTES, default_chunks
from oocdata.writers.codec import NAMES, Format, Shuffled, as_codec
from oocdata.writers.create import chunked
from oocdata.writers.placement import Placement
from oocdata.writers.target import Target, format_by_suffix, target_key
from oocdata.writers.upload import Upload

__all__ = ["MEMORY", "plan_of"]

MEMORY = DEFAULT_MEMORY
"""Bytes of memory for what is under way, by default."""

_READING = 64 << 20
"""Bytes of memory for reading: measured, more is no faster."""

_LIBRARIES = 96 << 20
"""What h5py and the codecs take, and allocators keep."""

_UNFIT: dict[Format, str] = {"hdf5": "UMm", "zarr": "SUV"}
"""Kinds of elements that can't be written to a format, or not be opened again from it."""


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
    _refuse_dtype(view, kind)
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


def _refuse_dtype(view: View, kind: Format) -> None:
    """Refuse elements that a format has no place for, or that are not opened again from it."""
    taken = "numbers" if kind == "zarr" else "numbers, bytes, or fields of them"
    hint = f"Write .npy instead{', or one field at a time' if view.dtype.names else ''}"
    if kind == "npy":
        if _in_order(view.dtype):
            return
        taken, hint = "fields in the order of their bytes", "Write .h5, or one field at a time"
    elif is_small_float(view.dtype):
        taken = "of a dtype that its files tell of"
        hint = "Write .npy, which keeps their bytes, or float32: .astype('f4'), --to-dtype f4"
    elif _kinds(view.dtype).isdisjoint(_UNFIT[kind]):
        return
    raise UnsupportedDtypeError(
        f"elements must be {taken} to be written to {NAMES[kind]}; got {view.dtype}. {hint}.",
        path=view.storage.path,
        key=view.storage.key,
    )


def _in_order(dtype: np.dtype[Any]) -> bool:
    """Return whether the header of a ``.npy`` has words for a dtype."""
    with suppress(ValueError):
        return bool(npy_format.dtype_to_descr(dtype))
    return False


def _kinds(dtype: np.dtype[Any]) -> set[str]:
    """Return the kinds of a dtype and of its fields, at any depth."""
    fields = (dtype[name].base for name in dtype.names or ())
    return {dtype.kind}.union(*map(_kinds, fields))


def _refuse_source(view: View, destination: str) -> None:
    """Refuse to write into what is read."""
    storage, end = view.storage, _place(destination)
    targets = (storage.opened or {}).get("target", storage.path)
    paths = [targets] if isinstance(targets, str) else list(targets or ())
    for path in (*paths, *(version.path for version in storage.files)):
        begin = _place(path)
        short, long = sorted((begin, end), key=len)
        there = os.path.exists(begin) and os.path.exists(end)  # not where one is a URL
        if f"{long}/".startswith(f"{short}/") or (there and os.path.samefile(begin, end)):
            raise ArgumentError(
                f"what is written must lie apart from what is read; got '{path}' and "
                f"'{destination}'. Choose another name, and rename it afterwards."
            )


def _place(path: str) -> str:
    return path.rstrip("/") if is_url(path) else os.path.realpath(path)


def _memory(target: Target, steps: Steps, reading: int, verify: bool, uploads: bool) -> int:
    """Return the bytes that a conversion takes at most, libraries included."""
    block = steps.blocks.most
    tile = block if steps.tiles is None else max(block, steps.tiles.most)
    # A box while the next one is read; its pieces; verifying, the block that it is compared with.
    boxes = 2 * tile + (tile // 2 if steps.tiles else 0) + (block if verify else 0)
    boxes += block if uploads else 0  # encoded, until the store has it
    encoding = 0 if target.chunks is None else 6 * prod(target.chunks) * cores()
    return (boxes + encoding) * target.dtype.itemsize + reading + _LIBRARIES
