"""Find the features of a ``tf.train.Example`` message, without TensorFlow.

A message of Protocol Buffers is a sequence of fields: a varint with the field's number and wire
type, then its value. Source: tensorflow/core/example/example.proto and feature.proto.
"""

from __future__ import annotations

from collections.abc import Iterator

__all__ = ["features_of"]

_KINDS = {1: "string", 2: "float32", 3: "int64"}
_FIXED = {1: 8, 5: 4}
"""Bytes of a value, by wire type; of the others a varint is 0, and a length and its bytes are 2."""


def features_of(record: bytes) -> dict[str, tuple[str, int]]:
    r"""Return the dtype and the number of values of each feature, by name.

    Features without values are left out. Raise ValueError if the record is no such message.

    Examples
    --------
    >>> features_of(b"\n\x0c\n\n\n\x01x\x12\x05\x1a\x03\n\x01\x07")
    {'x': ('int64', 1)}
    """
    found = {}
    for features in _messages(record, 1):
        for entry in _messages(features, 1):
            (name,), values = _messages(entry, 1), [*_messages(entry, 2)]
            for number, wire, value in _fields(values[-1] if values else b""):
                if number not in _KINDS or wire != 2:
                    raise ValueError("another message")
                dtype = _KINDS[number]
                count = sum(_count(dtype, *each) for each in _fields(value))
                if count:
                    found[name.decode()] = dtype, count
    return found


def _count(dtype: str, number: int, wire: int, value: bytes) -> int:
    """Return how many values a field of a list of them holds: packed ones, or one."""
    if number != 1:
        raise ValueError("another message")
    if wire != 2 or dtype == "string":
        return 1
    return len(value) // 4 if dtype == "float32" else sum(byte < 128 for byte in value)


def _messages(data: bytes, number: int) -> Iterator[bytes]:
    """Yield the messages of a field; raise ValueError for other fields than 1 and 2."""
    for each, wire, value in _fields(data):
        if each not in (1, 2) or wire != 2:
            raise ValueError("another message")
        if each == number:
            yield value


def _fields(data: bytes) -> Iterator[tuple[int, int, bytes]]:
    """Yield number, wire type and bytes of each field; raise ValueError unless they are all."""
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        wire, start = tag & 7, at
        if wire == 0:
            _, at = _varint(data, at)
        elif wire == 2:
            length, start = _varint(data, at)
            at = start + length
        else:
            at += _FIXED.get(wire, len(data) + 1)
        if at > len(data):
            raise ValueError("a field must end within its message")
        yield tag >> 3, wire, data[start:at]


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """Return a number of 7 bits a byte, the lowest first, and where it ends."""
    value = shift = 0
    while at < len(data) and shift < 64:
        value |= (data[at] & 127) << shift
        at, shift = at + 1, shift + 7
        if data[at - 1] < 128:
            return value, at
    raise ValueError("a number must end within its message")
