"""The metadata of an HDF5 file in a store: what they lead to is fetched before HDF5 asks for it.

HDF5 reads its metadata one small piece after the other, each found by an address in the one before,
and in most files they lie scattered between the data. In a store each piece would be a round trip.
So the pieces are looked at as they pass, and all that one leads to is fetched at once: behind
50 ms, a pattern of 200 datasets that are stored in chunks is open after 4 s instead of 20, its
first batch there after 8 instead of 38.

HDF5 File Format Specification, version 3.0: B-trees of version 1 (III.A.1), symbol table nodes
(III.B), local heaps (III.D), object headers (IV.A.1), data layout (IV.A.2.i); of newer files, the
chunks of datasets that grow along one axis (VII.D, extensible arrays). Those of a fixed shape
(VII.C) lie together: 60,000 chunks take 4 requests more than if they were followed.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from oocdata.engines.runs import UnfinishedError
from oocdata.formats.hdf5.file import hdf5_lock
from oocdata.stores.blocks import KEPT, ObjectStream, keep

if TYPE_CHECKING:
    from oocdata.stores.files import StoredFile

__all__ = ["MetadataStream", "leads_to"]

_GROUP_NODE, _SYMBOLS, _HEADER, _HEAP = 544, 328, 512, 512
"""Bytes of a group's B-tree node and of a symbol table node, with the sizes that nearly all files
have; and what HDF5 reads at first of an object header and of a local heap."""

_EXTENSIBLE = (32, 4, 16, 4, 10)
"""The parameters of extensible arrays, which HDF5 gives no way to choose."""

_INDICES = (b"TREE", b"EAHD", b"EAIB")
"""Followed to the end, since HDF5 reads all of them: of groups, and of chunks."""

_LARGEST = 1 << 20
"""Of a piece."""

_MOST_PIECES = 4096
"""Fetched at once."""


def leads_to(data: bytes) -> Iterator[tuple[int, int]]:
    """Yield the addresses and lengths of what a piece of metadata leads to; none that is unknown.

    Examples
    --------
    >>> heap = b"HEAP" + bytes(4) + struct.pack("<3Q", 88, 16, 4096)
    >>> list(leads_to(heap))
    [(4096, 88)]
    """
    kind = data[:4]
    if kind == b"TREE" and len(data) > 24:
        yield from _of_tree(data)
    elif kind == b"SNOD":
        (count,) = struct.unpack_from("<H", data, 6)
        for at in range(8, min(8 + 40 * count, len(data) - 39), 40):
            _, header, cached = struct.unpack_from("<QQI", data, at)
            yield header, _HEADER
            if cached == 1:  # a group, with where its names lie
                tree, heap = struct.unpack_from("<QQ", data, at + 24)
                yield from ((tree, _GROUP_NODE), (heap, _HEAP))
    elif kind == b"HEAP" and len(data) >= 32:
        length, _, address = struct.unpack_from("<3Q", data, 8)
        yield address, length
    elif kind in (b"EAHD", b"EAIB", b"EASB"):
        yield from _of_extensible_array(data)
    elif kind[:2] == b"\x01\x00" and len(data) >= _HEADER:
        yield from _of_header(data)


def _of_tree(data: bytes) -> Iterator[tuple[int, int]]:
    group, level, count = data[4] == 0, data[5], struct.unpack_from("<H", data, 6)[0]
    if group:
        length = _GROUP_NODE if level else _SYMBOLS
        yield from ((struct.unpack_from("<Q", data, 32 + 16 * at)[0], length)
                    for at in range(min(count, (len(data) - 40) // 16)))  # fmt: skip
        return
    # Of chunks, unless the file says otherwise; see `_chunk_node`.
    key, odd = divmod(len(data) - 24 - 64 * 8, 65)
    if level and not odd and key >= 24 and count <= 64:
        for at in range(count):
            yield struct.unpack_from("<Q", data, 24 + key + at * (key + 8))[0], len(data)


def _of_extensible_array(data: bytes) -> Iterator[tuple[int, int]]:
    """Yield what leads to the first 131,000 chunks; data blocks of those after are in pages."""
    kind = data[:4]
    if kind == b"EAHD" and len(data) >= 68 and tuple(data[7:12]) == _EXTENSIBLE:
        yield struct.unpack_from("<Q", data, 60)[0], 266 + 4 * data[6]
    elif kind == b"EAIB" and len(data) >= 266:
        size = (len(data) - 266) // 4
        addresses = struct.unpack_from("<15Q", data, 14 + 4 * size)
        lengths = [22 + count * size for count in (16, 32, 32, 32, 64, 64)]
        lengths += [22 + 8 * (1 << at // 2) for at in range(4, 13)]
        yield from zip(addresses, lengths, strict=True)
    elif kind == b"EASB" and len(data) >= 18:
        # The number of elements before it says which one it is. The size of an element is not
        # said: 8 bytes, or at most 20 where chunks are filtered.
        number = (struct.unpack_from("<I", data, 14)[0] // 16 + 1).bit_length() - 1
        count, nbytes = 1 << number // 2, 22 + (16 << (number + 1) // 2) * (20 if data[5] else 8)
        if number < 13 and len(data) >= 22 + 8 * count:
            yield from ((one, nbytes) for one in struct.unpack_from(f"<{count}Q", data, 18))


def _of_header(data: bytes) -> Iterator[tuple[int, int]]:
    (count,), (length,) = struct.unpack_from("<H", data, 2), struct.unpack_from("<I", data, 8)
    at, end = 16, min(16 + length, len(data))
    for _ in range(count):
        if at + 8 > end:
            return
        message, nbytes = struct.unpack_from("<HH", data, at)
        if message == 0x10 and at + 24 <= end:  # it goes on elsewhere
            yield struct.unpack_from("<QQ", data, at + 8)
        elif message == 0x11 and at + 24 <= end:  # a group
            tree, heap = struct.unpack_from("<QQ", data, at + 8)
            yield from ((tree, _GROUP_NODE), (heap, _HEAP))
        elif message == 0x08 and at + 19 <= end and data[at + 8 : at + 10] == b"\3\2":  # chunks
            yield struct.unpack_from("<Q", data, at + 11)[0], _chunk_node(data[at + 10])
        at += 8 + nbytes


def _chunk_node(axes: int) -> int:
    """Return the bytes of a B-tree node of chunks: 64 children with 65 keys between them."""
    return 24 + 64 * 8 + 65 * (8 + 8 * axes)


class MetadataStream(ObjectStream):
    """The bytes of an object, as HDF5 reads them; ``repr`` gives its URL, which names the file."""

    def __init__(self, file: StoredFile) -> None:
        super().__init__(file)
        self.walks = False
        """All groups will be looked at: then what pieces lead to is followed to the end."""
        self._followed: set[int] = set()
        self._unfollowed: dict[int, bytes] = {}

    def __repr__(self) -> str:
        return self.file.version.path

    def readinto(self, buffer: Any) -> int:
        """Fill all of the buffer, as far as the object goes: HDF5 takes what is left for zeros."""
        out = memoryview(buffer).cast("B")
        place, stop = self._place, min(self._place + len(out), self.file.version.nbytes)
        nbytes = max(0, stop - place)
        with hdf5_lock(self.file.version.path):  # h5py has it; so that no garbage is collected
            out[:nbytes] = data = self.file.part(place, nbytes)
            self._place += nbytes
            if nbytes <= _LARGEST:
                self._follow({place: data})
        return nbytes

    def _follow(self, pieces: dict[int, bytes]) -> None:
        """Fetch what pieces lead to, and what that leads to."""
        while True:
            if self.walks:
                pieces = {**pieces, **self._unfollowed}
                self._unfollowed = {}
            wanted: dict[int, int] = {}
            for address, length in (one for data in pieces.values() for one in leads_to(data)):
                length = min(length, self.file.version.nbytes - address, _LARGEST)
                if length > 0 and address not in self._followed:
                    wanted[address] = length
            deeper = self.walks or any(data[:4] in _INDICES for data in pieces.values())
            pieces = self._fetched(wanted)
            if not deeper or not pieces:
                self._unfollowed.update(pieces)
                return

    def _fetched(self, wanted: dict[int, int]) -> dict[int, bytes]:
        some = dict(sorted(wanted.items())[:_MOST_PIECES])
        far = {place: n for place, n in some.items() if not self.file.has_part(place, n)}
        ends = np.cumsum(list(far.values()))
        for place in list(far)[int(ends.searchsorted(KEPT // 2, side="right")) :]:
            del far[place], some[place]  # too many to be kept until HDF5 asks for them
        self._followed.update(some)
        found = {place: self.file.part(place, n) for place, n in some.items() if place not in far}
        if far:
            lengths = np.array(list(far.values()), np.int64)
            offsets, begins = np.array(list(far), np.int64), np.cumsum(lengths) - lengths
            memory = np.empty(int(lengths.sum()), np.uint8)
            try:
                self.file.read_runs(offsets, memory.ctypes.data + begins, lengths, memory)
            except UnfinishedError:  # whoever needs it says what is wrong
                return {}
            each = zip(far.items(), begins.tolist(), strict=True)
            found |= {place: memory[at : at + n].tobytes() for (place, n), at in each}
            for place in far:
                keep(self.file.version, place, found[place])
        return found
