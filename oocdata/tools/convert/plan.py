"""What a conversion will do: chunks and codec chosen, memory and disk counted, and why."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

from oocdata.datasets.view import View
from oocdata.explain import size
from oocdata.tools.convert.carry import Carried
from oocdata.tools.convert.steps import Steps
from oocdata.tools.lines import Report, labelled
from oocdata.writers.codec import NAMES, NONE
from oocdata.writers.placement import Placement
from oocdata.writers.target import Target
from oocdata.writers.upload import Upload

__all__ = ["Plan"]


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
        fields = {
            "from": f"{stored.path or 'memory'}{key}: {stored.format}, {stored.layout}{codec}",
            "to": f"{self.placement.path}{to_key}",
            "array": f"{what}, {self.target.dtype}, {size(self.nbytes)}",
            "chunks": self._chunks(),
            "codec": "" if self.target.format == "npy" else str(self.target.codec),
            "order": self._order(),
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
        shards = (
            "; many chunks a file, for fewer files"
            if target.shards not in (None, target.chunks)
            else ""
        )
        return f"{target.storage}: {why}{shards}"

    def _order(self) -> str:
        if self.steps.tiles is not None:
            return (
                "stored across the rows: every stored chunk is read once, into a scratch file "
                f"({size(self.nbytes)}) from which rows are put together"
            )
        times = self.steps.decodes
        return f"a stored chunk is decoded {times:.2f} times" if times > 1.004 else ""

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
