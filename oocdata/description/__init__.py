"""A loader as JSON: for other processes, other machines, and to say what has changed since.

Everything that makes a loader is a frozen dataclass, so one rule describes it: the import path of
its class and its fields, down to numbers, strings, ranges, dtypes and arrays of numbers. Nothing
is a pickle. A class or function of somebody else's is its import path (``package.module:name``),
and is imported again only from modules that the reader of the description allows.

Where the bytes lie is described by what any copy of them shares (a path, a size, the first and last
bytes, the metadata of a Zarr array) and is looked at anew by whoever reads the description.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from oocdata.description.decoding import Decoder
from oocdata.description.differences import differences
from oocdata.description.encoding import Encoder
from oocdata.errors import DescriptionError
from oocdata.loader import Loader

__all__ = ["FORMAT", "as_text", "describe", "differences", "loader_from"]

FORMAT = 1
"""The form of descriptions; another number is another form."""


def describe(loader: Loader) -> dict[str, Any]:
    """Return a loader as JSON: the same for the same loader, in any process.

    Reads the first and last bytes of each file.

    Parameters
    ----------
    loader : Loader
        Over data that lie in files or at URLs.

    Returns
    -------
    dict
        Of what `json` writes as it is, in an order that does not change.

    Raises
    ------
    oocdata.errors.DescriptionError
        If something of it can't travel: an array in memory, an open object, a function without an
        import path.
    oocdata.errors.SourceError
        If a file is gone, or is no longer what it was.

    Examples
    --------
    >>> import tempfile, numpy as np, oocdata as ooc
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.save(f"{folder}/a.npy", np.arange(10))
    ...     loader = ooc.open(f"{folder}/a.npy").batches(4, shuffle=True)
    ...     again = loader_from(describe(loader))
    ...     bool((again.batch(1, epoch=2) == loader.batch(1, epoch=2)).all())
    True
    """
    if not isinstance(loader, Loader):
        raise DescriptionError(f"`loader` must be a Loader; got {type(loader).__name__}.")
    return {"format": FORMAT, "loader": Encoder().encode(loader, ("loader",))}


def loader_from(description: Mapping[str, Any], *, allow: Iterable[str] = ()) -> Loader:
    """Return the loader that a description is of; its files are opened anew.

    Parameters
    ----------
    description : mapping
        As `describe` returns it, or as `json` reads that.
    allow : iterable of str
        Modules, or packages with all that is in them, from which functions and classes that are
        not oocdata's may be imported. Whoever writes the description chooses which of their
        functions are called.

    Raises
    ------
    oocdata.errors.DescriptionError
        If it is no description, or names what is not allowed or not there; or if a file is not
        the one that was described.
    oocdata.errors.SourceError
        If a file can't be opened.
    """
    if not isinstance(description, Mapping) or set(description) != {"format", "loader"}:
        raise DescriptionError(
            "a description must be what `describe` returns, with `format` and `loader`; got "
            f"{_short(description)}."
        )
    if description["format"] != FORMAT:
        raise DescriptionError(
            f"a description must have format {FORMAT}; got {_short(description['format'])}. It "
            "was made by another version of oocdata."
        )
    if isinstance(allow, str):
        raise DescriptionError(f"`allow` must be a list of modules; got the string {allow!r}.")
    try:
        loader = Decoder(tuple(allow)).decode(description["loader"], Loader, ("loader",))
    except RecursionError as error:
        raise DescriptionError("a description must not be nested that deep.") from error
    checked: Loader = loader
    return checked


def as_text(description: Mapping[str, Any]) -> str:
    """Return a description as one line of ASCII, the same for equal descriptions.

    Examples
    --------
    >>> as_text({"loader": None, "format": 1})
    '{"format":1,"loader":null}'
    """
    return json.dumps(description, sort_keys=True, separators=(",", ":"), allow_nan=False)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
