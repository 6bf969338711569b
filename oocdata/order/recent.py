"""The last few results of a pure function, kept for the next calls."""

from __future__ import annotations

from typing import Any

__all__ = ["Recent"]


class Recent(dict[Any, Any]):
    """A dict of the entries added last; a pickle or a copy of it is empty.

    Every step on it is one that no thread can divide, so it needs no lock.

    Parameters
    ----------
    most : int
        Entries that are kept.

    Examples
    --------
    >>> recent = Recent(2)
    >>> for number in range(4):
    ...     recent.add(number, "value")
    >>> sorted(recent)
    [2, 3]
    """

    def __init__(self, most: int) -> None:
        super().__init__()
        self.most = most

    def add(self, key: Any, value: Any) -> None:
        """Add an entry, and drop the one added longest ago when there are too many."""
        self[key] = value
        for old in list(self)[: -self.most]:
            self.pop(old, None)

    def __reduce__(self) -> tuple[type[Recent], tuple[int]]:
        return Recent, (self.most,)
