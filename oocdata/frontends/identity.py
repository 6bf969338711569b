"""What a position belongs to: which data, described how; in a few lines that fit any checkpoint.

A position (epoch, step) means the same batch only with the same data, selection, windows, batch
size, order and seed. Where the data lie, how many read them, and in how many shards, may change. So
a file is known by its size and by bytes from a handful of places in it, not by its path or time.

This is no description to build a loader from: it also covers what can't be written down, such as
arrays in memory and functions without a name of their own.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import numpy as np

from oocdata.datasets.dataset import Dataset
from oocdata.datasets.spec import leaves
from oocdata.errors import RestoreError
from oocdata.sources.memory import Memory
from oocdata.sources.source import Layout
from oocdata.sources.stamp import FileStamp
from oocdata.sources.zarr.store import join
from oocdata.sources.zarr.stored import StoredArray

if TYPE_CHECKING:
    from oocdata.loader import Loader

__all__ = ["as_text", "differences", "identity", "refuse_other"]

_MOST_TEXT = 2048
"""Characters; with what TensorFlow writes beside them, a checkpoint stays under 4 KiB."""

_BLOCK_BYTES = 4096
_BLOCKS = 16
"""Blocks looked at, of one file or of several together."""

_WHERE = ("key", "axis", "offset", "strides", "cuts", "dtype")
"""Fields of sources, readers and stored arrays that say which part of the bytes is meant."""


def identity(loader: Loader) -> dict[str, str]:
    """Return what must be the same for a position to mean the same batch.

    Parameters
    ----------
    loader : Loader

    Returns
    -------
    dict
        By the names of the fields; what is long stands there as a digest, ``"#…"``.

    Examples
    --------
    >>> import oocdata as ooc
    >>> found = identity(ooc.open(np.arange(10)).batches(4, shuffle=True, seed=7))
    >>> found["batch_size"], found["seed"], found["order"], found["dataset.rows"]
    ('4', '7', 'Shuffle', '0:10:1')
    """
    found = {name: repr(getattr(loader, name)) for name in ("batch_size", "seed", "drop_remainder")}
    found["elements"] = ", ".join(map(str, leaves(loader.dataset.spec)))
    found.update(_described(loader.order, "order"))
    found.update(_described(loader.dataset, "dataset"))
    return found


def as_text(found: Mapping[str, str]) -> str:
    """Return an identity as JSON of at most 2048 characters; the longest parts become digests.

    Examples
    --------
    >>> as_text({"seed": "7"})
    '{"seed":"7"}'
    """
    text = _json(found)
    if len(text) <= _MOST_TEXT:
        return text
    short = {name: _shortened(value) for name, value in found.items()}
    rest: dict[str, str] = {}
    while len(_json(short)) > _MOST_TEXT - 32:
        name, value = short.popitem()
        rest[name] = value
    return _json({**short, "more": _digest(_json(rest))} if rest else short)


def differences(saved: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """Say in which fields two identities differ; of what lies in one that does, nothing more.

    Examples
    --------
    >>> differences({"seed": "7", "rows": "#01"}, {"seed": "8", "rows": "#02"})
    ['`seed` was 7, and is 8', '`rows` differs']
    """
    found: list[str] = []
    other: list[str] = []
    for name in {**saved, **now}:
        if any(name.startswith(f"{whole}.") for whole in other):
            continue
        was, is_ = saved.get(name, "not there"), now.get(name, "not there")
        if was == is_ or _shortened(was) == _shortened(is_):
            continue
        hidden = was.startswith("#") and is_.startswith("#")
        other.append(name)
        found.append(f"`{name}` differs" if hidden else f"`{name}` was {was}, and is {is_}")
    return found


def refuse_other(saved: str, now: str, place: str = "") -> None:
    """Raise if two texts of identities are not of one and the same.

    Parameters
    ----------
    saved, now : str
        By `as_text`.
    place : str
        Where the first was found, for the message.

    Raises
    ------
    oocdata.errors.RestoreError
    """
    if saved == now:
        return
    found = differences(json.loads(saved), json.loads(now))
    if found:
        raise RestoreError(
            "a position must be restored onto the data and the loader that it was saved with; "
            f"{'; '.join(found)}{place}. Make the loader as it was then, or start anew."
        )


def _json(found: Mapping[str, str]) -> str:
    return json.dumps(found, separators=(",", ":"))


def _digest(*parts: str | bytes) -> str:
    made = blake2b(digest_size=6)
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        made.update(len(data).to_bytes(8, "little") + data)
    return f"#{made.hexdigest()}"


def _shortened(value: str) -> str:
    return value if len(value) <= len("#") + 12 else _digest(value)


def _described(value: Any, name: str) -> Iterator[tuple[str, str]]:
    """Yield (name, text) of a value and of what it is made of."""
    if hasattr(value, "read_into"):
        yield name, f"{tuple(value.shape)} {value.dtype}"
        yield f"{name}.content", _content(value)
    elif isinstance(value, range):
        yield name, f"{value.start}:{value.stop}:{value.step}"
    elif isinstance(value, np.ndarray):
        yield name, _digest(str(value.dtype), str(value.shape), value.tobytes())
    elif is_dataclass(value) and not isinstance(value, type):
        yield name, type(value).__name__
        for field in fields(value):
            # What a mapped function gives is among the elements, whether it was given or tried.
            if field.compare and not (isinstance(value, Dataset) and field.name == "given"):
                yield from _described(getattr(value, field.name), f"{name}.{field.name}")
    elif isinstance(value, tuple | list | dict):
        named = value.items() if isinstance(value, dict) else enumerate(value)
        for place, part in named:
            yield from _described(part, f"{name}.{place}")
    elif value is None or isinstance(value, bool | int | float | str):
        yield name, repr(value)
    else:
        yield name, getattr(value, "__qualname__", type(value).__qualname__)


def _content(source: Any) -> str:
    """Return a digest of some of a source's bytes, and of which of the bytes it delivers."""
    where: list[str] = []
    stored: list[Any] = []
    _find(source, where, stored)
    stored = list(dict.fromkeys(stored))
    # All of a few, or a few of many: with the first and the last.
    looked_at = _spread(len(stored), _BLOCKS)
    blocks = max(2, _BLOCKS // max(1, len(looked_at)))
    data = [block for one in looked_at for block in _blocks(stored[one], blocks)]
    return _digest(*where, *map(_size, stored), *data)


def _find(value: Any, where: list[str], stored: list[Any]) -> None:
    """Collect what says which bytes a source delivers, and what holds them."""
    if isinstance(value, FileStamp | Memory):
        stored.append(value)
        return
    if isinstance(value, Layout):
        if value.path is not None and not stored and os.path.isfile(value.path):
            stored.append(FileStamp.of(value.path))  # an object of the user's, open on a file
        return
    if isinstance(value, StoredArray):
        stored.append(value)
        where += [value.key, str(value.axis)]
        return
    if isinstance(value, tuple):
        for part in value:
            _find(part, where, stored)
    elif is_dataclass(value) and not isinstance(value, type):
        for field in fields(value):
            # `whole` is the same once more, read in another way.
            if field.compare and field.name != "whole":
                part = getattr(value, field.name)
                if field.name in _WHERE:
                    where.append(f"{field.name} {part}")
                else:
                    _find(part, where, stored)


def _size(stored: Any) -> str:
    if isinstance(stored, FileStamp):
        return str(stored.nbytes)
    if isinstance(stored, Memory):
        return f"{stored.shape} {stored.dtype}"
    metadata = stored.metadata
    parts = (metadata.shape, metadata.dtype, metadata.chunk_shape, metadata.codec)
    return f"{parts} {stored.stored_bytes}"


def _blocks(stored: Any, count: int) -> Iterator[bytes]:
    """Yield up to `count` blocks of bytes from all over a file or an array; nothing if it is gone.

    (Whoever reads it next says so, with the rows.)
    """
    if isinstance(stored, Memory):
        for row in _spread(len(stored.array), count):
            yield np.ascontiguousarray(stored.array[row]).tobytes()[:_BLOCK_BYTES]
    elif isinstance(stored, FileStamp):
        try:
            with open(stored.path, "rb", buffering=0) as file:
                last = max(0, stored.nbytes - _BLOCK_BYTES)
                for offset in _spread(last + 1, count):
                    yield os.pread(file.fileno(), _BLOCK_BYTES, offset)
        except OSError:
            return
    else:
        metadata = stored.metadata
        grid = tuple(
            -(-length // each)
            for length, each in zip(metadata.shape, metadata.object_shape, strict=True)
        )
        for number in _spread(int(np.prod(grid)), count):
            place = tuple(map(int, np.unravel_index(number, grid)))
            name = join(stored.key, metadata.name(place))
            yield stored.store.read_part(name, 0, _BLOCK_BYTES) or b""


def _spread(count: int, most: int) -> list[int]:
    """Return up to `most` of `count` numbers, evenly spread, with the first and the last."""
    return sorted({int(at) for at in np.linspace(0, count - 1, min(count, most))})
