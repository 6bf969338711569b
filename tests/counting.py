"""A chunked array in memory that counts the chunks it decodes, read by the real engine."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from oocdata.box import Extent
from oocdata.datasets.view import View
from oocdata.engines.chunked import Chunked
from oocdata.engines.source import Storage
from oocdata.testing import boxes_of


@dataclass(frozen=True)
class Decoder:
    """A chunk reader over an array in memory, which counts the chunks that it decodes."""

    array: np.ndarray
    chunk_shape: tuple[int, ...]
    decoded: Counter[tuple[int, ...]]
    own_threads = False

    __hash__ = object.__hash__

    @property
    def shape(self) -> tuple[int, ...]:
        return self.array.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.array.dtype

    def read_chunks(self, places: np.ndarray, outs: Sequence[np.ndarray]) -> None:
        for place, out in zip(places, outs, strict=True):
            self.decoded[tuple(place.tolist())] += 1
            box = Extent.of(out.shape)
            out[...] = boxes_of(self.array, place[None] * self.chunk_shape, box)[0]

    def check(self) -> None: ...

    def storage(self) -> Storage:
        return Storage("counted", chunks=self.chunk_shape)


def counted(array: np.ndarray, *chunk: int) -> tuple[View, Counter[tuple[int, ...]]]:
    decoded: Counter[tuple[int, ...]] = Counter()
    return View.of(Chunked(Decoder(array, chunk, decoded))), decoded
