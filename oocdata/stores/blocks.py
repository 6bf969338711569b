"""Blocks of metadata: fetched once, kept a while, and counted."""

from __future__ import annotations

import threading
from collections import Counter, OrderedDict

from oocdata.stores.versions import ObjectVersion

__all__ = ["BLOCK", "blocks_of_metadata", "count_block", "keep_block", "kept_block"]

BLOCK = 256 << 10
"""Of metadata, so much is fetched at a time; it is sent in less than a round trip takes."""

_BLOCKS_KEPT = 64

_COUNTED = 4096
"""Objects of which it is known how many blocks were fetched."""

_lock = threading.Lock()
_blocks: OrderedDict[tuple[ObjectVersion, int], bytes] = OrderedDict()
_fetched: Counter[ObjectVersion] = Counter()


def blocks_of_metadata(version: ObjectVersion) -> int:
    """Return how many blocks were fetched of an object one after the other, for its metadata.

    Its beginning, which comes when it is opened, is not counted.
    """
    return _fetched[version]


def count_block(version: ObjectVersion) -> None:
    """Count one more."""
    with _lock:
        _fetched[version] += 1
        if len(_fetched) > _COUNTED:
            _fetched.clear()


def kept_block(key: tuple[ObjectVersion, int]) -> bytes | None:
    """Return a block by its number, if it is kept."""
    with _lock:
        found = _blocks.get(key)
        if found is not None:
            _blocks.move_to_end(key)
        return found


def keep_block(key: tuple[ObjectVersion, int], block: bytes) -> None:
    """Keep a block until as many others were fetched as are kept."""
    with _lock:
        _blocks[key] = block
        while len(_blocks) > _BLOCKS_KEPT:
            _blocks.popitem(last=False)
