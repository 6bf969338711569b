"""Elements that were read and computed once, and lie in arrays since."""

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
    """A dataset whose elements lie in arrays; made by `Dataset.cache`.

    It is selected and split as the dataset that it was made of is, so that no two parts share a row
    of that; and read from the arrays.

    Attributes
    ----------
    chosen : Zip
        Of the positions in the arrays and the elements that they were made of.
    stored : tree of View
        An array for each of an element's, as many rows as the whole dataset had elements.
    """

    chosen: Zip
    stored: Any

    def __repr__(self) -> str:
        return f"<Cached: {len(self)} elements of {self.chosen.parts[1]!r}>"

    def __len__(self) -> int:
        return len(self.chosen)

    @property
    def spec(self) -> Spec:
        """What an element was made."""
        spec: Spec = map_tree(lambda view: view.spec, self.stored)
        return spec

    @property
    def _inner(self) -> Dataset:
        return self.chosen

    def _of(self, members: Sequence[Any]) -> Self:
        (chosen,) = members
        return replace(self, chosen=chosen)

    @cached_property
    def _members(self) -> list[Dataset]:
        positions = self.chosen.parts[0].rows
        return [view[positions] for view in leaves(self.stored)]
