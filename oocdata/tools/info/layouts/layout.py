"""What is said of a file whose layout is known."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeAlias

from oocdata.tools.info.layouts.listing import Listing

__all__ = ["Layout", "Recogniser", "lines", "listed", "split"]

_FEWEST_TO_SPLIT = 10
_WIDTH = 96
"""Of a line of code."""


@dataclass(frozen=True, slots=True)
class Layout:
    """The layout of a file: what it is called, how much there is, and code that opens it.

    Attributes
    ----------
    name : str
        Of the data set, or the format, that lies like this.
    summary : str
        ``"200 demos, 34,112 steps"``.
    code : tuple of str
        Lines of Python up to the first batch.
    keys : tuple of str
        A few arrays that stand for all others, which `oocdata info` describes; the one that most
        bytes lie in first.
    whole : str
        The key, or the pattern of keys, of all of the first one; empty for the key itself.
    """

    name: str
    summary: str
    code: tuple[str, ...]
    keys: tuple[str, ...]
    whole: str = ""

    @property
    def sentence(self) -> str:
        """``"robomimic: 200 demos, 34,112 steps"``."""
        return f"{self.name}: {self.summary}"


Recogniser: TypeAlias = Callable[[Listing], Layout]
"""Returns the layout of a file; a file of another one makes it raise, such as a LookupError."""


def lines(text: str, batch: str = "x, y") -> tuple[str, ...]:
    """Return lines of code between the import and the first batch.

    Parameters
    ----------
    text : str
        Code that ends by naming `train`, a dataset.
    batch : str
        Names of the arrays of a batch.

    Examples
    --------
    >>> for line in lines("train = ooc.open('a.npy')", "x"):
    ...     print(line)
    import oocdata as ooc
    train = ooc.open('a.npy')
    loader = train.batches(32, shuffle=True, seed=7)
    x = loader.batch(0)
    # model.fit(loader.to_tf(), epochs=10)
    """
    numpy = ["import numpy as np"] if "np." in text else []
    return (
        *numpy,
        "import oocdata as ooc",
        *text.strip("\n").split("\n"),
        "loader = train.batches(32, shuffle=True, seed=7)",
        f"{batch} = loader.batch(0)",
        "# model.fit(loader.to_tf(), epochs=10)",
    )


def split(name: str, count: int, more: str = "") -> str:
    """Return the line that splits a dataset of so many things; of few, all are for training.

    Examples
    --------
    >>> split("pairs", 100), split("pairs", 3)
    ('train, val = pairs.split(0.9, 0.1)', 'train = pairs')
    """
    if count < _FEWEST_TO_SPLIT:
        return f"train = {name}"
    return f"train, val = {name}.split(0.9, 0.1{more})"


def listed(name: str, values: Iterable[object]) -> str:
    """Return an assignment of a list, on several lines where it is long."""
    texts = [repr(value) for value in values]
    line = f"{name} = [{', '.join(texts)}]"
    if len(line) <= _WIDTH:
        return line
    return "\n".join([f"{name} = [", *(f"    {text}," for text in texts), "]"])
