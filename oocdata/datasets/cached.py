"""Define `Cached`: elements that were computed once and are read from arrays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

from oocdata.datasets.dataset import Dataset
from oocdata.datasets.spec import Spec, leaves, map_tree
from oocdata.datasets.zip import Zip
from oocdata.threads import cached_property

__all__ = ["Cached"]


@dataclass(frozen=True, eq=False, repr=False)
class Cached(Dataset):
    """A dataset whose elements were computed and are read from arrays; made by `Dataset.cache`.

    It is selected and split like the original dataset, so that no two parts share a row of the
    original arrays.

    Attributes
    ----------
    chosen : Zip
        Pairs (position in the arrays, element of the original dataset).
    stored : tree of View
        One array for each array of an element, with a row for each element of the original dataset.
    """

    chosen: Zip
    stored: Any

    def __repr__(self) -> str:
        return f"<Cached: {len(self)} elements of {self.chosen.parts[1]!r}>"

    @property
    def spec(self) -> Spec:
        """Shapes and dtypes of an element's arrays."""
        return map_tree(lambda view: view.spec, self.stored)

    @property
    def _split_members(self) -> tuple[Dataset]:
        return (self.chosen,)

    def _with_members(self, members: Sequence[Any]) -> Self:
        (chosen,) = members
        return replace(self, chosen=chosen)

    @cached_property
    def _members(self) -> list[Dataset]:
        positions = self.chosen.parts[0].rows
        return [view[positions] for view in leaves(self.stored)]
