"""Datasets of one file, each opened alone, as one array."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from oocdata.engines.axes import axis_numbers
from oocdata.engines.concat import concatenate
from oocdata.engines.source import Source
from oocdata.formats.patterns import Key, said

__all__ = ["datasets"]


def datasets(
    sources: Sequence[Source], axis: int | str, key: Key, opened: Mapping[str, Any]
) -> Source:
    """Return datasets of one file end to end; each is an episode.

    Parameters
    ----------
    sources : sequence of Source
    axis : int or str
        Along which they are put end to end.
    key : str or sequence of str
        The pattern or names that they were found by.
    opened : mapping
        Arguments of `oocdata.open` that open them again, besides the key.
    """
    first = sources[0]
    (along,) = axis_numbers(axis, len(first.shape), first.storage())
    again = {**opened, "key": key if isinstance(key, str) else list(key)}
    changes = {"path": first.storage().path, "key": said(key), "opened": again, "episodes": True}
    return concatenate(sources, along, changes)
