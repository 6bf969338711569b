"""What a format gives the chunks engine: an array as it lies in storage, read by boxes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from oocdata.sources.chunk_layout import Box
from oocdata.sources.source import Layout

__all__ = ["BoxReader", "ChunkReader"]


class BoxReader(Protocol):
    """An array as it lies in storage, read by boxes. A frozen, hashable, picklable description.

    Attributes
    ----------
    shape : tuple of int
        As stored, before the row axis is moved to the front.
    dtype : numpy.dtype
        Native byte order.
    chunk_shape : tuple of int
        The storage chunk; ones where any box costs only what it holds.
    """

    @property
    def shape(self) -> tuple[int, ...]:
        """As stored."""
        ...

    @property
    def dtype(self) -> np.dtype[Any]:
        """Native byte order."""
        ...

    @property
    def chunk_shape(self) -> tuple[int, ...]:
        """The storage chunk."""
        ...

    def read_box(self, box: Box) -> NDArray[Any]:
        """Return the elements of a box (one slice with start < stop, step 1, for each stored axis).

        Raises
        ------
        oocdata.errors.SourceError
            With file, dataset and the rows of the box.
        """
        ...

    def layout(self) -> Layout:
        """Return where and how the array is stored."""
        ...


@runtime_checkable
class ChunkReader(BoxReader, Protocol):
    """A reader that decodes several chunks at a time straight into their places.

    Attributes
    ----------
    own_threads : bool
        It decodes in threads of its own, so it is given all chunks at once; else a few, in each of
        several threads.
    """

    @property
    def own_threads(self) -> bool:
        """Whether it decodes in threads of its own."""
        ...

    def read_boxes(self, boxes: Sequence[Box], outs: Sequence[NDArray[Any]]) -> None:
        """Fill ``outs[i]`` with ``boxes[i]``, each the part of one chunk that lies in the array.

        Nothing writes to `outs` any more when it returns or raises, even if it is interrupted.

        Raises
        ------
        oocdata.errors.SourceError
            With file, dataset and the rows of the box that can't be read.
        """
        ...
