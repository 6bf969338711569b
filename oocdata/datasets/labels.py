"""Define `folder_labels`: class labels from the names of folders."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from oocdata.datasets.view import View
from oocdata.engines.memory_array import MemoryArray
from oocdata.engines.source import Annotations, Storage
from oocdata.errors import ArgumentError
from oocdata.index import as_count


@dataclass(eq=False)
class FolderLabels(MemoryArray):
    """The number in `categories` of each row's folder, `level` folders up; a `Source`.

    The view has all rows of some files, along axis 0.
    """

    view: View
    level: int
    categories: tuple[str, ...]

    def __post_init__(self) -> None:
        names = _folders(self.view, self.level)
        if len(set(self.categories)) < len(self.categories) or not set(names) <= {*self.categories}:
            raise ArgumentError(
                f"`categories` must name each folder once, {sorted(set(names))}; got "
                f"{list(self.categories)}."
            )
        number_of = {name: number for number, name in enumerate(self.categories)}
        numbers = np.array([number_of[name] for name in names], np.int64)
        storage = Storage(
            "names of folders",
            layout="one number a row",
            codec="none",
            reading="from the paths, once",
            table_bytes=8 * self.view.source.shape[0],
            categorical=True,
            annotations=partial(Annotations, {"categories": self.categories}),
        )
        super().__init__(numbers[self.view.parts.numbers], storage)


def folder_labels(view: View, *, level: int = 1, categories: Sequence[str] | None = None) -> View:
    """Return labels of a view's rows: the number of the folder that contains the row's file.

    Parameters
    ----------
    view : View
        A view of files, e.g. ``ooc.open("train/*/*.jpg")``, or a selection of its rows.
    level : int
        1: the folder that contains the file; 2: the folder that contains this folder, such as
        ``run`` for ``films/run/film_3/1.png``; and so on. Folders of the same name are one class.
    categories : sequence of str, optional
        Names of the folders, in the order of their numbers, e.g. ``.categories`` of the labels of a
        training set. By default all folders of the files, sorted, as in Keras.

    Returns
    -------
    View
        int64, one label for each row, in order. ``.categories`` has the names.

    Raises
    ------
    oocdata.errors.ArgumentError
        If rows are not from files, or a folder is not among the categories.

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
    whole = View.of(view.source)
    level = as_count("level", level, at_least=1)
    names = sorted(set(_folders(whole, level)))
    chosen = names if categories is None else [str(name) for name in categories]
    labels = View.of(FolderLabels(whole, level, tuple(chosen)))
    return replace(labels, cuts=view.cuts[:1], rows=view.rows)


def _folders(view: View, level: int) -> list[str]:
    """Return the name of the folder of each part, `level` folders up from the file."""
    paths = [path or "" for path, _ in view.parts.where]
    if not all(paths):
        raise ArgumentError("`view` must be of files; got an array in memory.")
    folders = [os.path.abspath(path).split(os.sep)[1:-1] for path in paths]
    shallow = min(folders, key=len)
    if len(shallow) < level:
        raise ArgumentError(
            f"`level` must be at most the number of folders above each file; got {level} for a "
            f"file in /{'/'.join(shallow)}."
        )
    return [names[-level] for names in folders]
