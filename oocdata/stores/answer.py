"""Define `Answer`, the answer of a store to one request."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

__all__ = ["Answer"]


@dataclass(frozen=True, slots=True)
class Answer:
    """Bytes of an object, and its version."""

    data: Any  #: a buffer
    nbytes: int  #: of the whole object
    tag: str  #: the server's name of the version (ETag); empty where it gives none
    modified: int  #: nanoseconds since the epoch, to the second
