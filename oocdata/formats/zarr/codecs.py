"""Interpret the codecs of a Zarr array: which steps decode a chunk, and what the chunks are."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from math import prod
from typing import Any, TypeAlias

import numpy as np

from oocdata.box import Ints
from oocdata.errors import UnknownFormatError
from oocdata.formats.codecs import decompress, numcodec

_Steps: TypeAlias = list[tuple[str, dict[str, Any]]]

_CODECS_V2 = {"blosc": "blosc", "gzip": "gzip", "zlib": "deflate", "zstd": "zstd"}
_CODECS_V3 = {"blosc": "blosc", "crc32c": "crc32c", "gzip": "gzip", "zstd": "zstd"}
"""Codecs with their names in `oocdata.formats.codecs.decompress`; others are numcodecs'."""
_BLOSC_CODECS = {"blosclz", "lz4", "lz4hc", "zlib", "zstd"}
_TEXTS = ("vlen-utf8", "vlen-bytes")
"""Codecs of version 3 that make bytes of texts, as ``bytes`` does of numbers."""
_BLOSC_SHUFFLES = {-1: "auto-shuffle", 0: "", 1: "shuffle", 2: "bitshuffle", "noshuffle": ""}


@dataclass(frozen=True, slots=True)
class ShardIndex:
    """The index of a shard: its position in the shard, and the order of its entries.

    An entry has 16 bytes, offset and length of a chunk as uint64, all ones for an absent chunk
    (Zarr specification, codec ``sharding_indexed`` version 1.0, "Binary shard format").
    """

    grid: tuple[int, ...]
    """Chunks of a shard along each axis."""
    at_end: bool
    dtype: str
    """uint64 of either byte order."""
    nbytes: int
    """With the 4 bytes of a crc32c, if there is one."""

    @property
    def part(self) -> tuple[int, int | None]:
        """Start and stop of the index in a shard, as of a slice."""
        return (-self.nbytes, None) if self.at_end else (0, self.nbytes)

    def addresses(self, stored: bytes, nbytes: int) -> Ints:
        """Decode the stored index of a shard of `nbytes` bytes.

        Return offset and length of each chunk, -1 for an absent one, of shape (*grid, 2). Raise
        `ValueError` if the index is damaged.
        """
        count = 16 * prod(self.grid)
        if len(stored) != self.nbytes:
            raise ValueError(f"it has {len(stored)} bytes of {self.nbytes}")
        if self.nbytes > count:
            stored = decompress("crc32c", stored, None)
        found = np.frombuffer(stored, self.dtype, 2 * prod(self.grid)).reshape(*self.grid, 2)
        absent = (found == np.uint64(2**64 - 1)).all(axis=-1)
        beyond = ~absent & (
            (found > np.uint64(nbytes)).any(axis=-1) | (found.sum(axis=-1) > np.uint64(nbytes))
        )
        if beyond.any():
            raise ValueError(f"it leads beyond the object, which has {nbytes} bytes")
        return np.where(absent[..., None], np.int64(-1), found.astype(np.int64))


@dataclass(frozen=True, slots=True)
class CodecChain:
    """A chain of codecs, as a reader needs it."""

    text: str
    """Description for people; empty if nothing is encoded."""
    compressors: tuple[str, ...] = ()
    """Steps of `decompress` for a chunk (in shards, an inner one), in the order of encoding."""
    axes: tuple[int, ...] = ()
    """The array's axis of each axis of a stored chunk; empty if the order is the array's."""
    endian: str | None = None
    """Of version 3: ``"little"``, ``"big"``, or None."""
    chunk_shape: tuple[int, ...] | None = None
    """The innermost chunk of a shard, in the array's axes; None without shards."""
    shard_index: ShardIndex | None = None
    """None without shards."""


def named(value: Any) -> tuple[str, dict[str, Any]]:
    """Return the name and options of a v3 extension.

    The short form, a bare name, is refused, as other libraries refuse it.
    """
    if not isinstance(value, dict):
        raise TypeError(f"an extension must be an object with a name; got {value!r}")
    options = value.get("configuration") or {}
    if not isinstance(options, dict):
        raise TypeError(f"configuration must be an object; got {options!r}")
    return str(value["name"]), options


def describe_v2(compressor: Any, filters: Any) -> CodecChain:
    """Describe a v2 compressor (an object or null) and filters (a list or null)."""
    codecs = [*(filters or []), *([compressor] if compressor is not None else [])]
    steps = [(str(codec["id"]), {k: v for k, v in codec.items() if k != "id"}) for codec in codecs]
    return CodecChain(_text(steps), _decodable(steps, _CODECS_V2))


def describe_v3(codecs: Any, shape: tuple[int, ...]) -> CodecChain:
    """Describe the codecs of a v3 array, which work on chunks of `shape`."""
    steps = [named(codec) for codec in codecs]
    names = [name for name, _ in steps]
    if "sharding_indexed" in names:
        place = names.index("sharding_indexed")
        if around := names[:place] + names[place + 1 :]:
            raise _refused(f"the codec {around[0]} around shards")
        return _shards(steps[place][1], shape)
    axes = in_order = tuple(range(len(shape)))
    for name, options in steps:
        if name == "transpose":
            if sorted(options["order"]) != list(in_order):
                raise ValueError(
                    f"transpose must have an order of the axes; got {options['order']!r}"
                )
            axes = tuple(axes[axis] for axis in options["order"])
    place = next((at for at, name in enumerate(names) if name in ("bytes", *_TEXTS)), len(names))
    if place == len(names):
        raise _refused("its codecs")
    endian = steps[place][1].get("endian")
    filters = [step for step in steps[:place] if step[0] != "transpose"]
    if filters and (axes != in_order or endian == "big"):
        raise _refused(f"the codec {filters[0][0]} of moved axes or big-endian numbers")
    texts = [step for step in steps[place : place + 1] if step[0] in _TEXTS]
    known = _decodable([*filters, *texts, *steps[place + 1 :]], _CODECS_V3)
    return CodecChain(_text(steps), known, axes if axes != in_order else (), endian)


def _shards(options: dict[str, Any], shard: tuple[int, ...]) -> CodecChain:
    chunk = tuple(options["chunk_shape"])
    if len(chunk) != len(shard) or any(
        not isinstance(n, int) or n < 1 or length % n
        for n, length in zip(chunk, shard, strict=True)
    ):
        raise ValueError(f"the chunks {chunk} of a shard must divide its shape {shard}")
    place = options.get("index_location", "end")
    if place not in ("start", "end"):
        raise ValueError(f"index_location must be 'start' or 'end'; got {place!r}")
    inner = describe_v3(options["codecs"], chunk)
    index_steps = [named(codec) for codec in options["index_codecs"]]
    index_names = [name for name, _ in index_steps]
    if inner.chunk_shape or index_names not in (["bytes"], ["bytes", "crc32c"]):
        raise _refused("shards in shards" if inner.chunk_shape else "an encoded index of shards")
    grid = tuple(length // n for length, n in zip(shard, chunk, strict=True))
    big = index_steps[0][1].get("endian", "little") == "big"
    nbytes = 16 * prod(grid) + 4 * (len(index_names) - 1)
    index = ShardIndex(grid, place == "end", ">u8" if big else "<u8", nbytes)
    return replace(inner, chunk_shape=chunk, shard_index=index)


def _decodable(steps: _Steps, known: dict[str, str]) -> tuple[str, ...]:
    """Return codecs as steps of `decompress`; raise for an unknown one.

    In version 3, the codecs of numcodecs have names that begin so.
    """
    found: list[str] = []
    for name, options in steps:
        if name in known and (name != "blosc" or options.get("cname") in _BLOSC_CODECS):
            found.append(known[name])
            continue
        short = name.removeprefix("numcodecs.")
        found.append(json.dumps({"id": short, **options}))
        try:
            if known is _CODECS_V3 and short == name and name not in _TEXTS:
                raise ValueError("it is no codec of numcodecs")
            numcodec(found[-1])
        except (ValueError, TypeError) as error:
            raise _refused(f"the codec {name}") from error
    return tuple(found)


def _refused(what: str) -> UnknownFormatError:
    return UnknownFormatError(
        "the chunks must be encoded by codecs of Zarr or numcodecs that can be undone one chunk at "
        f"a time; got {what}. Write the array again with others."
    )


def _text(steps: _Steps) -> str:
    words = []
    for name, options in steps:
        if name == "bytes":
            words += ["big-endian"] if options.get("endian") == "big" else []
        elif name == "blosc":
            shuffle = _BLOSC_SHUFFLES.get(options.get("shuffle", 0), str(options.get("shuffle")))
            words.append(f"blosc {options.get('cname')} {options.get('clevel')} {shuffle}".strip())
        elif name == "transpose":
            words.append(f"transpose {tuple(options['order'])}")
        else:
            words.append(f"{name} {options['level']}" if "level" in options else name)
    return ", ".join(words)
