"""What a codec would save, by a sample of a few places; and which one to use."""

from __future__ import annotations

from math import prod

import numpy as np

from oocdata.tools.convert.reading import BoxSource
from oocdata.writers.codec import DEFAULT, NONE, Codec, Format, Shuffled, as_codec
from oocdata.writers.encoding import sample_size

__all__ = ["chosen_codec"]

_SAVES_LITTLE = 0.9
"""Share of its size that a sample must come down to for compression to be worth decoding."""

_SAMPLES = 4
_SAMPLE_BYTES = 4 << 20
_DEAREST_SAMPLE = 64 << 20
"""Bytes of a stored chunk above which none is decoded for a sample."""


def chosen_codec(
    source: BoxSource, kind: Format, codec: str | None, shuffle: Shuffled | None
) -> tuple[Codec, float | None]:
    """Return the codec asked for, or the usual one if it saves something; and what it saves."""
    usual = DEFAULT[kind]
    if codec is None and shuffle is None:
        sampled = None if usual == NONE else _sampled(source, usual)
        return (NONE if sampled is not None and sampled > _SAVES_LITTLE else usual), sampled
    way = as_codec(codec or usual.name, shuffle, kind)
    return way, None if way == NONE else _sampled(source, way)


def _sampled(source: BoxSource, codec: Codec) -> float | None:
    """Return what a codec makes of a few places of an array; None where asking costs too much."""
    itemsize = source.dtype.itemsize
    if not prod(source.shape) or prod(source.chunk) * itemsize > _DEAREST_SAMPLE:
        return None
    taken = encoded = 0
    # Of one stored chunk each, so that no others are decoded for it.
    most = max(1, _SAMPLE_BYTES // _SAMPLES // itemsize)
    shape = list(source.chunk)
    for axis in range(len(shape)):
        rest = prod(shape) // shape[axis]
        shape[axis] = max(1, min(shape[axis], most // max(1, rest)))
        if prod(shape) <= most:
            break
    if source.chunk[0] == 1:
        shape[0] = max(1, min(source.shape[0], most // prod(shape)))
    places = sorted(
        {source.shape[0] * (2 * number + 1) // (2 * _SAMPLES) for number in range(_SAMPLES)}
    )
    for place in places:
        first = source.lead + (place - source.lead) // source.chunk[0] * source.chunk[0]
        first = max(0, min(first, source.shape[0] - shape[0]))
        box = (slice(first, first + shape[0]), *(slice(0, length) for length in shape[1:]))
        values = np.empty(shape, source.dtype)
        source.read(box, values)
        taken += values.nbytes
        encoded += sample_size(codec, values)
    return encoded / taken
