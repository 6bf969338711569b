"""Describe a loader as JSON: for another machine, for worker processes, and as a fingerprint.

A loader, its order and its datasets are frozen dataclasses, whose leaves are arrays, functions and
sources. For another machine, a source is how to open it, with a digest of some of its numbers, and
a function its import path; for worker processes leaves are pickled beside the JSON; in a
fingerprint they are digests.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from oocdata.describe.decoding import Decoder
from oocdata.describe.encoding import Encoder
from oocdata.describe.fingerprints import check_fingerprint, differences, fingerprint
from oocdata.errors import DescriptionError
from oocdata.loader import Loader
from oocdata.stream import Stream

__all__ = [
    "FORMAT", "as_json", "check_fingerprint", "describe", "differences", "fingerprint", "from_json",
]  # fmt: skip

FORMAT = 10
"""Version of the form of descriptions; renaming a field requires a new one."""


def describe(loader: Loader | Stream, *, objects: list[Any] | None = None) -> dict[str, Any]:
    """Return a loader as JSON, which is the same for equal loaders in any process.

    Reads a few numbers of each source, and raises DescriptionError if a part can't be described: an
    array in memory, an open object, a function without an import path. If a list `objects` is
    given, sources, functions and arrays of any kind are appended to it, and nothing is read.
    """
    if not isinstance(loader, Loader | Stream):
        raise DescriptionError(f"`loader` must be a Loader; got {type(loader).__name__}.")
    return {"format": FORMAT, "loader": Encoder(objects).encode(loader, "loader")}


def as_json(loader: Loader | Stream, *, objects: list[Any] | None = None) -> str:
    """Return the result of `describe` as one line of ASCII."""
    return json.dumps(describe(loader, objects=objects), separators=(",", ":"), allow_nan=False)


def from_json(
    description: str | bytes | Mapping[str, Any],
    *,
    allow: Iterable[str] = (),
    objects: Sequence[Any] = (),
) -> Loader | Stream:
    """Return the loader of a description, a result of `as_json` or `describe`; opens its files.

    `objects` is the list that was passed to `describe`. `allow` has the modules, and packages with
    all their modules, from which functions and classes other than oocdata's may be imported: the
    author of the description chooses which of their functions are called. Raises DescriptionError
    for what is not a description, not allowed or missing, and for a file that is another one.
    """
    if isinstance(allow, str):
        raise DescriptionError(f"`allow` must be a list of modules; got the string {allow!r}.")
    try:
        parts = json.loads(description) if isinstance(description, str | bytes) else description
        whole = isinstance(parts, Mapping) and set(parts) == {"format", "loader"}
        if not whole or parts["format"] != FORMAT:
            raise DescriptionError(
                f"a description must be what `describe` returns, in format {FORMAT}; got "
                f"{parts!r}. Another version of oocdata may have made it."
            )
        loader = Decoder(tuple(allow), objects).decode(parts["loader"], "loader")
    except json.JSONDecodeError as error:
        raise DescriptionError(f"a description must be JSON; {error}.") from error
    except RecursionError as error:
        raise DescriptionError("a description must not be nested that deep.") from error
    if not isinstance(loader, Loader | Stream):
        raise DescriptionError(
            "a description must be readable; `loader` is not: it must be a Loader; got "
            f"{parts['loader']!r}."
        )
    return loader
