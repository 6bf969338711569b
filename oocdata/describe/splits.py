"""Parts of a split in a small file: JSON, with the fingerprint of what was split.

``{"kind": "split", "format": …, "of": fingerprint, "parts": …}``. Parts are written as `describe`
tells of them, ranges as three numbers, chosen rows as their differences; but a source or function
is a number, its place among those of the dataset that was split. So nothing is opened or imported
by loading a file, and the data may lie elsewhere.
"""

from __future__ import annotations

import json
import os
from typing import Any

import numpy as np

from oocdata.datasets.dataset import Dataset
from oocdata.describe.decoding import Decoder
from oocdata.describe.encoding import Encoder
from oocdata.describe.fingerprints import dataset_fingerprint, differences
from oocdata.engines.whole import whole_file
from oocdata.errors import ArgumentError, DescriptionError, MissingFileError, RestoreError
from oocdata.index import as_path

__all__ = ["load_split", "save_split"]

FORMAT = 1
"""The form of the file; another number is another form."""


def save_split(
    path: str | os.PathLike[str], dataset: Dataset, parts: Any, *, overwrite: bool = False
) -> None:
    """Write which elements the parts of a dataset have, as a small JSON file.

    Parameters
    ----------
    path : path
    dataset : Dataset
        What was split: `load_split` needs the same.
    parts : tuple, list or dict of Dataset
        Made of it, by `Dataset.split`, `Dataset.split_at`, `Dataset.folds` or selections; nested as
        you like.
    overwrite : bool
        Whether a file of that name may be written over.

    Raises
    ------
    oocdata.errors.ArgumentError
        If a part is not made of the dataset, or the file is there.

    Examples
    --------
    >>> import tempfile, oocdata as ooc
    >>> frames = ooc.open(np.arange(10))
    >>> train, val = frames.split(0.8, 0.2, stratify=[0, 1] * 5)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     ooc.save_split(f"{folder}/split.json", frames, {"train": train, "val": val})
    ...     again = ooc.load_split(f"{folder}/split.json", frames)
    >>> np.asarray(again["val"]).tolist() == np.asarray(val).tolist()
    True
    """
    place = os.path.abspath(as_path("path", path))
    _check_dataset(dataset)
    _check_datasets(parts)
    described = _Numbered(_leaves(dataset)).encode(parts, "parts")
    of = json.loads(dataset_fingerprint(dataset))
    text = json.dumps({"kind": "split", "format": FORMAT, "of": of, "parts": described})
    if not overwrite and os.path.lexists(place):
        raise ArgumentError(
            f"`path` must not be there yet; {place!r} is. Pass overwrite=True to write over it."
        )
    with whole_file(place) as file:
        file.write(text.encode("ascii"))


def load_split(path: str | os.PathLike[str], dataset: Dataset) -> Any:
    """Return the parts that `save_split` wrote, of the same dataset opened anew.

    Parameters
    ----------
    path : path
    dataset : Dataset
        With the same numbers, shapes and functions as the one that was split; where its files lie
        may differ. A few numbers are read to see that.

    Returns
    -------
    tuple or dict of Dataset
        As they were given to `save_split`; a list comes back as a tuple.

    Raises
    ------
    oocdata.errors.RestoreError
        If the dataset is another one; the message says what differs.
    oocdata.errors.DescriptionError
        If the file is none of `save_split`.

    Examples
    --------
    >>> import tempfile, oocdata as ooc
    >>> frames = ooc.open(np.arange(10))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     ooc.save_split(f"{folder}/split.json", frames, frames.split(0.8, 0.2))
    ...     train, val = ooc.load_split(f"{folder}/split.json", frames)
    >>> len(train), len(val)
    (8, 2)
    """
    place = as_path("path", path)
    _check_dataset(dataset)
    try:
        with open(place, encoding="ascii") as file:
            found = json.load(file)
        if found["kind"] != "split" or found["format"] != FORMAT:
            raise ValueError(f"it has format {found['format']!r}")
        saved, parts = dict(found["of"]), found["parts"]
    except FileNotFoundError as error:
        raise MissingFileError("No such file.", path=place) from error
    except (ValueError, TypeError, KeyError) as error:  # UnicodeDecodeError too
        raise DescriptionError(
            f"{place!r} must be what oocdata.save_split writes; it is not: {error}."
        ) from error
    other = differences(saved, json.loads(dataset_fingerprint(dataset)))
    if other:
        raise RestoreError(
            f"a split must be loaded for the dataset that it was made of; {'; '.join(other)} "
            f"({place!r}). Open it as it was then, or split anew."
        )
    return Decoder((), _leaves(dataset)).decode(parts, "parts")


def _check_dataset(dataset: Any) -> None:
    if not isinstance(dataset, Dataset):
        raise ArgumentError(f"`dataset` must be what was split; got {dataset!r}.")


def _check_datasets(parts: Any) -> None:
    """Raise if parts are anything but datasets."""
    if isinstance(parts, dict | tuple | list) and parts:
        for part in parts.values() if isinstance(parts, dict) else parts:
            _check_datasets(part)
    elif not isinstance(parts, Dataset):
        raise ArgumentError(
            f"`parts` must be datasets in tuples, lists and dicts; got {type(parts).__name__}."
        )


def _leaves(dataset: Dataset) -> list[Any]:
    """Return the sources and functions of a dataset, one for each place where one stands.

    (Not each once: the same data may be opened once at one time, and twice at another.)
    """
    found: list[Any] = []
    _Numbered(found, grows=True).encode(dataset, "dataset")
    return found


class _Numbered(Encoder):
    """Writes sources and functions as their places in a list, which may grow by them."""

    def __init__(self, known: list[Any], *, grows: bool = False) -> None:
        super().__init__()
        self._known, self._grows = known, grows

    def leaf(self, value: Any, place: str) -> Any:
        """Return JSON of an array; of anything else its number."""
        if isinstance(value, np.ndarray | np.generic):
            return super().leaf(value, place)
        if self._grows:
            self._known.append(value)
        for number, one in enumerate(self._known):
            if one is value:
                return {"beside": number}
        raise ArgumentError(
            f"`parts` must be made of `dataset`; `{place}` is not in it. Split the dataset that is "
            "saved, not one opened anew."
        )
