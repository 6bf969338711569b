"""What a conversion will do: chunks and codec chosen, memory and disk counted, and why."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from oocdata.datasets.view import View
from oocdata.errors import ArgumentError, SourceError
from oocdata.explain import size
from oocdata.index import as_count
from oocdata.memory import DEFAULT_MEMORY, at_most
from oocdata.threads import cores
from oocdata.tools.convert.carry import Carried, carried
from oocdata.tools.convert.journal import identity
from oocdata.tools.convert.reading import PIECE_BYTES, BoxSource
from oocdata.tools.convert.sample import chosen_codec
from oocdata.tools.convert.steps import Steps, steps_of
from oocdata.writers.chunking import CHUNK_BYTES, LARGEST, SHARD_BYTES, default_chunks
from oocdata.writers.codec import NONE, Shuffled
from oocdata.writers.create import chunked
from oocdata.writers.placement import Placement
from oocdata.writers.target import Target, format_by_suffix, target_key

__all__ = ["MEMORY", "Plan", "plan_of"]

MEMORY = DEFAULT_MEMORY
"""Bytes of memory for what is under way, by default."""

_READING = 64 << 20
"""Bytes of memory for reading: measured, more is no faster."""

_LIBRARIES = 96 << 20
"""What h5py, TensorStore and the codecs take, and allocators keep."""

_UNSURE = 1.15
"""An estimate from a sample may be wrong by as much."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What a conversion will do, and why so.

    Attributes
    ----------
    view : View
        What is read.
    target : Target
        What is written.
    placement : Placement
    steps : Steps
        In which boxes.
    carried : Carried
        Attributes and the like.
    sampled : float or None
        Encoded bytes of a sample for each byte of it; None where none was taken.
    chosen_codec : bool
        The codec was not asked for.
    chosen_chunks : bool
        Nor were the chunks.
    memory_bytes : int
        What is taken at most, beside what the process has taken before.
    reading_bytes : int
        What the process's memory for reading is lowered to meanwhile; half of it for chunks.
    verify : bool
    about : mapping of str
        What must be the same for a rerun to go on; empty where that can't be told.
    """

    view: View
    target: Target
    placement: Placement
    steps: Steps
    carried: Carried
    sampled: float | None
    chosen_codec: bool
    chosen_chunks: bool
    memory_bytes: int
    reading_bytes: int
    verify: bool
    about: Mapping[str, str]

    @property
    def nbytes(self) -> int:
        """Bytes of the array in memory."""
        return prod(self.target.shape) * self.target.dtype.itemsize

    @property
    def result_bytes(self) -> int:
        """About as many as the result will take on disk; an estimate where it is compressed."""
        if self.target.codec == NONE or self.sampled is None:
            return self.nbytes
        return int(self.nbytes * min(1.0, self.sampled))

    @property
    def more_disk(self) -> tuple[tuple[int, str], ...]:
        """Bytes that the disk must have beside the result, and what for."""
        found = []
        if self.steps.tiles is not None:
            found.append((self.nbytes, "a file that it goes through"))
        if self.placement.keeps_others():
            nbytes = os.path.getsize(self.placement.path)
            found.append((nbytes, "a copy of the file that it is added to"))
        return tuple(found)

    @property
    def disk_bytes(self) -> int:
        """What must be free on the disk, the file to go through and a copy included."""
        needed = min(int(self.result_bytes * _UNSURE), self.nbytes) + (1 << 20)
        return needed + sum(nbytes for nbytes, _ in self.more_disk)

    def check_disk(self, there: int) -> None:
        """Raise if the disk has too little room, beside `there` bytes that were written before.

        Raises
        ------
        oocdata.errors.SourceError
        """
        free = shutil.disk_usage(os.path.dirname(self.placement.path)).free
        needed = self.disk_bytes - there
        if needed <= free:
            return
        how = "" if self.sampled is None else ", estimated from a sample"
        parts = f"{size(self.result_bytes)} for the result{how}"
        parts += "".join(f", {size(nbytes)} for {what}" for nbytes, what in self.more_disk)
        raise SourceError(
            f"the disk must have {size(needed)} free ({parts}); it has {size(free)}. Free some, or "
            "write to another disk.",
            path=self.placement.path,
        )

    def __str__(self) -> str:
        from oocdata.tools.convert.text import plan_text

        return plan_text(self)

    def as_json(self) -> dict[str, Any]:
        """Return everything, for ``json.dumps``."""
        from oocdata.tools.convert.text import plan_json

        return plan_json(self)


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
    """Return what `oocdata.convert` would do with these arguments; nothing is written.

    Raises
    ------
    oocdata.errors.ArgumentError, oocdata.errors.SourceError
        As `oocdata.convert`.

    Examples
    --------
    >>> import tempfile, numpy as np, oocdata as ooc
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     view = ooc.open(np.zeros((1000, 64), "f4"))
    ...     plan_of(view, f"{folder}/a.h5", chunks=100).target.chunks
    (100, 64)
    """
    bound = as_count("memory", memory, at_least=1 << 20)
    kind = format_by_suffix(destination)
    _refuse_source(view, destination)
    of_source = view.storage.key
    key = target_key(kind, to_key, of_source if of_source != "/" else None)
    placement = Placement.of(destination, key, kind, overwrite)
    along = carried(view, kind)
    source = BoxSource(view)
    # Each chunk is needed for one box, or two where a border cuts it: none is kept for longer.
    reading = min(bound, max(_READING, 4 * source.chunk_rows_bytes))
    with at_most(reading):
        way, sampled = chosen_codec(source, kind, codec, shuffle)
    # Two blocks are under way, one that is read and one that is written, and what is made of them.
    block_bytes = bound // 4
    chunk, shard = chunked(
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
        chunks=chunk,
        shards=shard,
        codec=way,
        fill_value=along.fill_value,
        attributes=along.attributes,
        dimension_names=along.dimension_names,
    )
    # Where nothing is encoded, a piece of a row is as good as the row.
    whole = default_chunks(view.shape, view.dtype.itemsize, largest=PIECE_BYTES)
    steps = steps_of(
        view.shape,
        view.dtype.itemsize,
        source.chunk,
        target.unit if target.chunks is not None else (1, *whole[1:]),
        block_bytes,
        lead=source.lead,
    )
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
        sampled=sampled,
        chosen_codec=codec is None and shuffle is None,
        chosen_chunks=chunks is None,
        memory_bytes=_memory(source, target, steps, reading, verify),
        reading_bytes=reading,
        verify=verify,
        about=about,
    )


def _refuse_source(view: View, destination: str) -> None:
    """Refuse to write into what is read."""
    end = os.path.realpath(destination)
    storage = view.storage
    targets = (storage.opened or {}).get("target", storage.path)
    paths = [targets] if isinstance(targets, str) else list(targets or ())
    for path in (*paths, *(version.path for version in storage.files)):
        if "://" in path:
            continue
        begin = os.path.realpath(path)
        inside = os.path.commonpath([begin, end]) in (begin, end)
        if inside or (
            os.path.exists(end) and os.path.exists(begin) and os.path.samefile(begin, end)
        ):
            raise ArgumentError(
                f"what is written must lie apart from what is read; got '{path}' and "
                f"'{destination}'. Choose another name, and rename it afterwards."
            )


def _memory(source: BoxSource, target: Target, steps: Steps, reading: int, verify: bool) -> int:
    """Return the bytes that a conversion takes at most, libraries included."""
    itemsize = target.dtype.itemsize
    block = steps.blocks.most
    tile = block if steps.tiles is None else max(block, steps.tiles.most)
    # A box while the next one is read; verifying, the block that it is compared with.
    with at_most(reading):
        boxes = (2 * tile + (block if verify else 0)) * itemsize + source.extra_bytes(tile)
    pieces = tile * itemsize // 2 if steps.tiles is not None else 0
    encoding = 0 if target.chunks is None else 6 * prod(target.chunks) * itemsize
    return boxes + pieces + cores() * encoding + _LIBRARIES
