"""Tell what a Zarr array's codecs mean: who can decode them, and what is decoded together."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

__all__ = ["CodecChain", "ShardIndex", "describe_v2", "describe_v3", "named"]

_Steps: TypeAlias = list[tuple[str, dict[str, Any]]]

# Codecs that TensorStore's drivers have. An array of which they don't take an option, such as
# numcodecs' checksum of zstd, is read by zarr-python all the same (`readers.TensorStoreReader`).
_TENSORSTORE_V2 = {"zlib", "gzip", "bz2", "zstd", "blosc"}
_TENSORSTORE_V3 = {"bytes", "transpose", "gzip", "zstd", "blosc", "crc32c", "sharding_indexed"}
_COMPRESSORS = {"blosc": "blosc", "zstd": "zstd", "gzip": "gzip", "zlib": "deflate"}
"""Those that imagecodecs undoes, by its names for them."""
_BLOSC_CODECS = {"blosclz", "lz4", "lz4hc", "zlib", "zstd"}
_BLOSC_SHUFFLES = {-1: "auto-shuffle", 0: "", 1: "shuffle", 2: "bitshuffle", "noshuffle": ""}


@dataclass(frozen=True, slots=True)
class ShardIndex:
    """Where a shard keeps the addresses of its chunks, and in which order.

    16 bytes for each chunk, offset and length as uint64, all ones for a chunk that is not there
    (Zarr specification, codec ``sharding_indexed`` version 1.0, "Binary shard format").
    """

    grid: tuple[int, ...]
    """Chunks of a shard, in the order of the stored axes."""
    axes: tuple[int, ...]
    """The array's axis of each stored axis: a transpose may stand before the sharding."""
    at_end: bool
    dtype: str
    """Of an address: uint64 of either byte order."""
    nbytes: int
    """4 more than the addresses take where a crc32c follows them."""

    def absent(self, stored: bytes) -> NDArray[np.bool_]:
        """Return which chunks of a shard are not there, axes as the array's."""
        # All ones in either byte order.
        addresses = np.frombuffer(stored, np.uint64, 2 * prod(self.grid)).reshape(*self.grid, 2)
        empty: NDArray[np.bool_] = (addresses == np.uint64(2**64 - 1)).all(axis=-1)
        return empty.transpose(np.argsort(self.axes))

    def addresses(self, stored: bytes, nbytes: int) -> NDArray[np.int64]:
        """Return where the chunks of a shard of so many bytes lie: shape (*grid, 2).

        Offset and length, -1 for a chunk that is not there; axes as stored. `ValueError` if it is
        not whole.
        """
        count = 16 * prod(self.grid)
        if len(stored) != self.nbytes:
            raise ValueError(f"it has {len(stored)} bytes of {self.nbytes}")
        if self.nbytes > count:
            from google_crc32c import value  # not for `import oocdata`

            if value(stored[:count]) != int.from_bytes(stored[count:], "little"):
                raise ValueError("it is not what its checksum says")
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
    """What a chain of codecs means for a reader."""

    text: str
    """For people; empty where nothing is encoded."""
    zarr_only: str
    """What TensorStore can't decode; empty where it can all."""
    extra_bytes: int | None
    """Bytes stored beside the elements where nothing compresses; None where something does."""
    chunk_shape: tuple[int, ...] | None = None
    """The innermost chunk of a shard, in the array's axes; None without shards."""
    shard_index: ShardIndex | None = None
    """None without shards, or where the index can't be found without decoding."""
    compressor: str = ""
    """The codec, as imagecodecs names it, in which elements are stored and nothing else; of shards,
    those of a chunk."""


def named(value: Any) -> tuple[str, dict[str, Any]]:
    """Return the name and options of a v3 extension.

    The short form, a bare name, is refused: TensorStore and zarr-python do not read it either.

    Examples
    --------
    >>> named({"name": "gzip", "configuration": {"level": 1}})
    ('gzip', {'level': 1})
    """
    if not isinstance(value, dict):
        raise TypeError(f"an extension must be an object with a name; got {value!r}")
    options = value.get("configuration") or {}
    if not isinstance(options, dict):
        raise TypeError(f"configuration must be an object; got {options!r}")
    return str(value["name"]), options


def describe_v2(compressor: Any, filters: Any) -> CodecChain:
    """Describe a v2 compressor (an object or null) and filters (a list or null).

    Examples
    --------
    >>> describe_v2({"id": "lzma"}, [{"id": "delta", "dtype": "<i4"}]).zarr_only
    'the codec delta'
    """
    codecs = [*(filters or []), *([compressor] if compressor is not None else [])]
    steps = [(str(codec["id"]), {k: v for k, v in codec.items() if k != "id"}) for codec in codecs]
    # No filter at all passes TensorStore's driver "zarr", not even one that it knows as a
    # compressor.
    strange = f"the codec {steps[0][0]}" if filters else _strange(steps, _TENSORSTORE_V2)
    compressor = _compressor(steps) if not filters else ""
    return CodecChain(_text(steps), strange, None if steps else 0, compressor=compressor)


def describe_v3(codecs: Any, shape: tuple[int, ...]) -> CodecChain:
    """Describe the codecs of a v3 array, which work on chunks of `shape`.

    Examples
    --------
    >>> plain, checksum = {"name": "bytes"}, {"name": "crc32c"}
    >>> options = {"chunk_shape": [2, 3], "codecs": [plain], "index_codecs": [plain, checksum]}
    >>> shards = {"name": "sharding_indexed", "configuration": options}
    >>> chain = describe_v3([shards], (4, 6))
    >>> chain.chunk_shape, chain.shard_index.grid, chain.shard_index.nbytes
    ((2, 3), (2, 2), 68)
    """
    steps = [named(codec) for codec in codecs]
    strange = _strange(steps, _TENSORSTORE_V3)
    axes = tuple(range(len(shape)))
    for place, (name, options) in enumerate(steps):
        if name == "transpose":
            if sorted(options["order"]) != list(range(len(axes))):
                raise ValueError(
                    f"transpose must have an order of the axes; got {options['order']!r}"
                )
            axes = tuple(axes[axis] for axis in options["order"])
        elif name == "sharding_indexed":
            chain = _shards(options, tuple(shape[axis] for axis in axes), axes)
            after = steps[place + 1 :]
            if after:  # TensorStore refuses it, and the index lies inside what these codecs encoded
                reason = f"the codec {after[0][0]} around shards"
                chain = replace(chain, zarr_only=reason, shard_index=None)
            texts = [chain.text, _text(steps[:place] + after)]
            alone = place == 0 and chain.shard_index is not None
            return replace(
                chain,
                zarr_only=strange or chain.zarr_only,
                text=", ".join(filter(None, texts)),
                compressor=chain.compressor if alone else "",
            )
    names = [name for name, _ in steps]
    plain = set(names) <= {"bytes", "transpose", "crc32c"}
    extra = 4 * names.count("crc32c") if plain else None
    compressor = _compressor(steps[1:]) if names[:1] == ["bytes"] else ""
    return CodecChain(_text(steps), strange, extra, compressor=compressor)


def _shards(options: dict[str, Any], shard: tuple[int, ...], axes: tuple[int, ...]) -> CodecChain:
    """Describe shards whose axes lie in the order `axes`."""
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
    innermost = inner.chunk_shape or chunk
    index_steps = [named(codec) for codec in options["index_codecs"]]
    index_names = [name for name, _ in index_steps]
    index = None
    if index_names in (["bytes"], ["bytes", "crc32c"]) and inner.chunk_shape is None:
        grid = tuple(length // n for length, n in zip(shard, chunk, strict=True))
        big = index_steps[0][1].get("endian", "little") == "big"
        kind = ">u8" if big else "<u8"
        index = ShardIndex(
            grid, axes, place == "end", kind, 16 * prod(grid) + 4 * (len(index_names) - 1)
        )
    return CodecChain(
        inner.text,
        inner.zarr_only or _strange(index_steps, _TENSORSTORE_V3),
        None,
        tuple(innermost[axes.index(axis)] for axis in range(len(axes))),
        index,
        inner.compressor,
    )


def _compressor(steps: _Steps) -> str:
    """Return the one codec of a chain, as imagecodecs names it; empty where it has no such one."""
    if len(steps) != 1:
        return ""
    ((name, options),) = steps
    if name == "blosc" and options.get("cname") not in _BLOSC_CODECS:
        return ""
    return _COMPRESSORS.get(name, "")


def _strange(steps: _Steps, known: set[str]) -> str:
    return next((f"the codec {name}" for name, _ in steps if name not in known), "")


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
