"""Labels that lie in no file: the folders in which files are."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oocdata.box import Extent
from oocdata.datasets.dataset import Described
from oocdata.datasets.view import View
from oocdata.engines.memory_array import MemoryArray
from oocdata.engines.source import Annotations, Storage
from oocdata.errors import ArgumentError
from oocdata.index import as_count
from oocdata.threads import cached_property

__all__ = ["FolderLabels", "folder_labels"]


@dataclass(frozen=True, eq=False)
class FolderLabels(Described):
    """The number of the folder in which the file of each row lies; a `Source`.

    Attributes
    ----------
    view : View
        Every row of some files, along axis 0.
    categories : tuple of str
        Names of the folders; the number of one is its place.
    level : int
        1 for the folder in which the file lies, 2 for the one above, …
    """

    view: View
    categories: tuple[str, ...]
    level: int

    @property
    def shape(self) -> tuple[int, ...]:
        """One axis, of the files' rows."""
        return (self.view.source.shape[0],)

    @property
    def dtype(self) -> np.dtype[Any]:
        """int64."""
        return np.dtype(np.int64)

    @cached_property
    def _labels(self) -> MemoryArray:
        names = _folders(self.view, self.level)
        unknown = sorted({name for name in names if name not in self.categories})
        if unknown:
            raise ArgumentError(
                f"`categories` must name every folder; {unknown[0]!r} is none of "
                f"{list(self.categories)}."
            )
        number_of = {name: number for number, name in enumerate(self.categories)}
        numbers = np.array([number_of[name] for name in names], np.int64)
        return MemoryArray(numbers[self.view.parts.numbers])

    def read(self, origins: NDArray[np.int64], extent: Extent, out: NDArray[Any]) -> None:
        """Write ``out[i] = the box at origins[i]``; see `oocdata.engines.source.Source.read`."""
        self._labels.read(origins, extent, out)

    def storage(self) -> Storage:
        """Return that nothing is stored, and what the numbers mean."""
        return Storage(
            "names of folders",
            layout="one number a row",
            codec="none",
            reading="from the paths, once",
            table_bytes=8 * self.shape[0],
            annotations=lambda: Annotations({"categories": self.categories}),
        )


def folder_labels(view: View, *, categories: Sequence[str] | None = None, level: int = 1) -> View:
    """Return the label of each row of a view of several files: the number of its folder.

    Parameters
    ----------
    view : View
        Of files, such as ``ooc.open("train/*/*.jpg")``; whatever rows of them are selected.
    categories : sequence of str, optional
        The folders, in the order of their numbers: ``.categories`` of the training's labels, for
        those of another set. By default all folders of the files, sorted, as Keras numbers them.
    level : int
        1 for the folder in which a file lies; 2 for the one above, as in
        ``train/cat/images/7.jpg``.

    Returns
    -------
    View
        int64, one for each row of the view, in its order; ``.categories`` has the names.

    Raises
    ------
    oocdata.errors.ArgumentError
        If the rows lie in no files, or in a folder that is none of the categories.

    Examples
    --------
    >>> import tempfile, pathlib, numpy as np, oocdata as ooc
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     for name in ("dog", "cat"):
    ...         (pathlib.Path(folder) / name).mkdir()
    ...         np.save(f"{folder}/{name}/a.npy", np.zeros((2, 3)))
    ...     labels = ooc.folder_labels(ooc.open(f"{folder}/*/a.npy"))
    >>> np.asarray(labels), labels.categories
    (array([0, 0, 1, 1]), ('cat', 'dog'))
    """
    if not isinstance(view, View) or view.axes != (0,):
        raise ArgumentError(
            f"`view` must be a View of files, with axis 0 as its sample axis; got {view!r}."
        )
    level = as_count("level", level)
    whole = View.of(view.source)
    names = sorted(set(_folders(whole, level)))
    chosen = names if categories is None else [str(name) for name in categories]
    if len(set(chosen)) < len(chosen):
        raise ArgumentError(f"`categories` must name each folder once; got {chosen}.")
    labels = FolderLabels(whole, tuple(chosen), level)
    labels._labels  # noqa: B018  # an error comes now
    return replace(View.of(labels), cuts=view.cuts[:1], rows=view.rows)


def _folders(view: View, level: int) -> list[str]:
    """Return the name of each part's folder."""
    found = []
    for path, _ in view.parts.where:
        steps = os.path.abspath(path).split(os.sep) if path else []
        if len(steps) < level + 2:
            raise ArgumentError(
                f"`view` must be of files that lie in {level} folders or more; got "
                f"{path or 'an array in memory'}."
            )
        found.append(steps[-1 - level])
    return found
