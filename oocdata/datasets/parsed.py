"""Define `Parsed`: the features of records, of fixed or of unequal length."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocdata.box import Ints
from oocdata.datasets.dataset import Draw, fields_of
from oocdata.datasets.map import Map
from oocdata.datasets.ragged import RaggedBatch
from oocdata.datasets.request import singles_of
from oocdata.datasets.spec import Batch, Spec, leaves
from oocdata.engines.byte_rows import OBJECT_BYTES
from oocdata.errors import MapError, location_text
from oocdata.threads import cached_property

_BATCH = 256
"""Records whose lengths are found together."""


@dataclass(frozen=True, eq=False, repr=False)
class Parsed(Map):
    """A dataset of the features of records; made by `View.parse`.

    Its function, an `oocdata.frontends.examples.ParseExamples`, may return ragged rows.
    """

    fn: Any

    def __repr__(self) -> str:
        return f"<Parsed: {len(self)} elements of {self.spec}>"

    @property
    def spec(self) -> Spec:
        return {**self.fn.spec}

    @cached_property
    def is_multi_array(self) -> bool:
        return any(leaf.form != "dense" for leaf in leaves(self.spec))

    def describe(self) -> dict[str, Any]:
        return fields_of(self)

    def array_bytes(self, elements: int) -> list[int]:
        """Return upper bounds: a stored number takes at least a byte, a float 4 and a text 2."""
        if not self.is_multi_array:
            return super().array_bytes(elements)
        nbytes, sizes = self._object_bytes(elements), []
        for leaf in leaves(self.spec):
            value = OBJECT_BYTES // 2 + 1 if leaf.dtype.hasobject else leaf.dtype.itemsize
            least = 4 if leaf.dtype.kind == "f" else 1
            stored = nbytes if leaf.form == "ragged" else 0
            sizes.append(elements * max(8, leaf.nbytes) + stored * value // least)
        return [*sizes, nbytes]

    def row_lengths(self) -> Ints | None:
        if not self.is_multi_array:
            return None
        longest = []
        for batch in self.batches(_BATCH).epoch(0):
            rows = [leaf for leaf in leaves(batch) if isinstance(leaf, RaggedBatch)]
            longest.append(np.maximum.reduce([each.row_lengths for each in rows]))
        return np.concatenate(longest)

    def assemble(self, arrays: Iterator[NDArray[Any]], positions: Ints, draw: Draw) -> Batch:
        records: Any = self.source.assemble(arrays, positions, draw)
        try:
            parsed: Batch = self.fn(records)
            return parsed
        except Exception as error:
            for record, position in zip(records, positions, strict=True):
                if fault := self.fn.fault(record):
                    raise MapError(
                        f"a record must have the features of `parse`, as TensorFlow reads them: "
                        f"{fault} [{self._location(position)}]"
                    ) from error
            raise

    def _location(self, position: np.int64) -> str:
        """Return the file and row of a record, as other errors name them."""
        (request,) = singles_of(self.source.requests(np.array([position]), Draw()))
        path, key, row = request.source.storage().place(int(request.origins[0, 0]))
        return location_text(path, key, [row])
