"""Describe a loader as JSON, for fingerprints, worker processes and other machines.

A loader, its order and its datasets are frozen dataclasses. Their fields are numbers, text, ranges,
other such objects, and as leaves arrays, functions and sources. There are three ways to write them,
which differ in the leaves only:

==============  ====================  ======================  ===============================
leaf            `describe`: for       `fingerprint`: is the   with `objects`: for worker
                another machine       loader still the same?  processes on this machine
==============  ====================  ======================  ===============================
source          how to open it, and   shape, dtype, digest    the object, pickled
                a digest              of some of its numbers
function        import path           import path, or digest  the object, pickled
                                      of its code
array           base64                digest                  the object, pickled
==============  ====================  ======================  ===============================

`FORMAT` is the version of a description; renaming a field requires a new version.
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
"""Version of the form of descriptions."""


def describe(loader: Loader | Stream, *, objects: list[Any] | None = None) -> dict[str, Any]:
    """Return a loader as JSON, which is the same for equal loaders in any process.

    Reads a few numbers of each source. If a list `objects` is given, sources, functions and arrays
    are appended to it, and the description refers to them by number. Then the loader may be of
    anything, and nothing is read.

    Raises
    ------
    oocdata.errors.DescriptionError
        If a part of the loader can't be described: an array in memory, an open object, a function
        without an import path.
    oocdata.errors.SourceError
        If a file is gone or has changed.
    """
    if not isinstance(loader, Loader | Stream):
        raise DescriptionError(f"`loader` must be a Loader; got {type(loader).__name__}.")
    return {"format": FORMAT, "loader": Encoder(objects).encode(loader, "loader")}


def as_json(loader: Loader | Stream, *, objects: list[Any] | None = None) -> str:
    """Return the description of a loader as one line of ASCII; see `describe`."""
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
    author of the description chooses which of their functions are called.

    Raises
    ------
    oocdata.errors.DescriptionError
        If this is not a description, or if it names something that is not allowed or missing; or if
        a file is not the one that was described.
    oocdata.errors.SourceError
        If a file can't be opened.
    """
    if isinstance(allow, str):
        raise DescriptionError(f"`allow` must be a list of modules; got the string {allow!r}.")
    try:
        parts = json.loads(description) if isinstance(description, str | bytes) else description
        whole = isinstance(parts, Mapping) and set(parts) == {"format", "loader"}
        if not whole or parts["format"] != FORMAT:
            raise DescriptionError(
                f"a description must be what `describe` returns, in format {FORMAT}; got "
                f"{_short(parts)}. Another version of oocdata may have made it."
            )
        loader = Decoder(tuple(allow), objects).decode(parts["loader"], "loader")
    except json.JSONDecodeError as error:
        raise DescriptionError(f"a description must be JSON; {error}.") from error
    except RecursionError as error:
        raise DescriptionError("a description must not be nested that deep.") from error
    if not isinstance(loader, Loader | Stream):
        raise DescriptionError(
            "a description must be readable; `loader` is not: it must be a Loader; got "
            f"{_short(parts['loader'])}."
        )
    return loader


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
