"""Read one field of structured rows as an array.

Where every byte has an address, a field is another offset, and only its bytes are read. Rows in
compressed chunks are decoded once, however many of their fields are read.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocdata.box import Extent, Ints
from oocdata.engines.concat import Concat
from oocdata.engines.copying import copy_boxes, read_through
from oocdata.engines.dtypes import check_stored, unit_of
from oocdata.engines.memory_array import MemoryArray
from oocdata.engines.mixed_shapes import RaggedPart
from oocdata.engines.ragged_rows import RaggedRows
from oocdata.engines.source import Boxes, Source
from oocdata.engines.strided import Strided, contiguous_strides
from oocdata.engines.wrapped import Relabelled
from oocdata.errors import MissingKeyError
from oocdata.threads import cached_property

_SCRATCH_BYTES = 4 << 20


def field_of(source: Source, name: str) -> Source:
    """Return one field of a source of structured rows: the axes of the rows, then of the field.

    Raises `MissingKeyError`, with the fields there are, if the rows have no such field, and
    `UnsupportedDtypeError` if batches can't hold its dtype.
    """
    storage, names = source.storage(), source.dtype.names or ()
    where: Any = {"path": storage.path, "key": storage.key}
    if name not in names:
        fields = f"the fields {', '.join(map(repr, names))}" if names else f"none: {source.dtype}"
        raise MissingKeyError(f"rows must have the field {name!r}; they have {fields}.", **where)
    base, shape, _ = _parse(source.dtype, name)
    check_stored(base, **where)
    opened = storage.opened
    described = replace(
        storage,
        layout=f"{storage.layout}, field {name!r}",
        stored_bytes=None,
        chunks=None if storage.chunks is None else (*storage.chunks, *shape),
        strides=None,
        dimensions=(*storage.dimensions, *[""] * len(shape)) if storage.dimensions else (),
        unit=unit_of(base),
        opened=opened and {**opened, "field": [*opened.get("field", ()), name]},
    )
    if type(source) is Concat:
        parts = [field_of(part, name) for part in source.parts]
        return source.with_parts(parts, layout=described.layout, opened=described.opened)
    if isinstance(source, RaggedPart):
        return replace(source, source=field_of(source.source, name))
    if isinstance(source, RaggedRows):
        return replace(source, values=field_of(source.values, name))
    if isinstance(source, MemoryArray):
        field = source.array[name]
        return MemoryArray(field.view(check_stored(field.dtype)), described, row_source=source)
    if isinstance(source, Strided) and source.chunk_offsets is None:
        base, _, offset = _parse(source.stored, name)
        stored = check_stored(base)
        strides = (*source.strides, *contiguous_strides(shape, stored.itemsize))
        return Strided(
            source.file,
            stored,
            (*source.shape, *shape),
            strides,
            source.offset + offset,
            replace(described, strides=strides),
            axis=source.axis,
        )
    return Field(source, described, name)


def _parse(dtype: np.dtype[Any], name: str) -> tuple[np.dtype[Any], tuple[int, ...], int]:
    """Return the dtype of a field's values, its shape, and its offset in a row, in bytes."""
    assert dtype.fields is not None
    field, offset = dtype.fields[name][:2]
    base, shape = field.subdtype or (field, ())
    return base, shape, offset


@dataclass(frozen=True, eq=False)
class Field(Relabelled):
    """A field of structured rows, which are read whole."""

    name: str

    @cached_property
    def shape(self) -> tuple[int, ...]:
        return (*self.source.shape, *_parse(self.source.dtype, self.name)[1])

    @cached_property
    def dtype(self) -> np.dtype[Any]:
        return check_stored(_parse(self.source.dtype, self.name)[0])

    def read_boxes(self, origins: Ints, extent: Extent) -> list[Boxes]:
        ndim = len(self.source.shape)
        rows = Extent(extent.lengths[:ndim], extent.strides[:ndim])
        return [(self.source, origins[:, :ndim], rows)]

    def read(self, origins: Ints, extent: Extent, out: NDArray[Any]) -> None:
        if out.size == 0:
            return
        ((source, rows, row),) = self.read_boxes(origins, extent)
        ndim = len(source.shape)
        # The scratch memory holds the rows of each box only, so a box begins at 0 along them.
        within = Extent(extent.lengths, (*[1] * ndim, *extent.strides[ndim:]))
        inner = origins.copy()
        inner[:, :ndim] = 0
        for part, read in read_through(source, rows, row, source.dtype, _SCRATCH_BYTES):
            copy_boxes(read[self.name].view(self.dtype), inner[part], within, out[part])
