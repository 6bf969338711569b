"""Save the parts of a split in a small JSON file, with a fingerprint of the dataset.

``{"kind": "split", "format": …, "of": fingerprint, "digest": …, "parts": …}``. Parts are written
like descriptions, ranges as three numbers, selected rows as differences. But a source or function
is a number, its position among those of the dataset that was split. So loading a file opens and
imports nothing, and the data may have moved. The digest is that of the parts, which refer to each
other: of a file that was edited, elements of a zip might go together with others.
"""

from __future__ import annotations

import json
import os
from hashlib import blake2b
from typing import Any

import numpy as np

from oocdata.datasets.dataset import Dataset
from oocdata.describe.decoding import Decoder
from oocdata.describe.encoding import Encoder
from oocdata.describe.fingerprints import dataset_fingerprint, differences
from oocdata.engines.atomic import atomic_file
from oocdata.errors import (
    ArgumentError,
    DescriptionError,
    MissingFileError,
    RestoreError,
    SourceError,
)
from oocdata.index import as_flag, as_path

FORMAT = 3
"""Version of the form of the file."""


def save_split(
    path: str | os.PathLike[str], dataset: Dataset, parts: Any, *, overwrite: bool = False
) -> None:
    """Write which elements the parts of a dataset have to a small JSON file.

    Parameters
    ----------
    path : path
    dataset : Dataset
        The dataset that was split; `load_split` needs the same.
    parts : tuple, list or dict of Dataset
        Made from `dataset` by `Dataset.split`, `Dataset.split_at`, `Dataset.folds` or selections;
        may be nested.
    overwrite : bool
        Whether to replace an existing file.

    Raises
    ------
    oocdata.errors.ArgumentError
        If a part is not made from the dataset, or the file exists.
    oocdata.errors.SourceError
        If the file can't be written.

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
    node = {"kind": "split", "format": FORMAT, "of": of, "digest": _digest(described)}
    text = json.dumps({**node, "parts": described})
    if not as_flag("overwrite", overwrite) and os.path.lexists(place):
        raise ArgumentError(
            f"`path` must not be there yet; {place!r} is. Pass overwrite=True to write over it."
        )
    try:
        with atomic_file(place) as file:
            file.write(text.encode("ascii"))
    except OSError as error:
        raise SourceError(
            f"the file must be writable; the system says: {error.strerror}.", path=place
        ) from error


def load_split(path: str | os.PathLike[str], dataset: Dataset) -> Any:
    """Return the parts that `save_split` wrote, of the same dataset opened again.

    Parameters
    ----------
    path : path
    dataset : Dataset
        With the same numbers, shapes and functions as the dataset that was split; its files may
        have moved. A few numbers are read to verify that.

    Returns
    -------
    tuple, list or dict of Dataset
        In the structure that was passed to `save_split`.

    Raises
    ------
    oocdata.errors.RestoreError
        If the dataset is another one; the message lists the differences.
    oocdata.errors.DescriptionError
        If the file was not written by `save_split`, or was edited since.
    oocdata.errors.SourceError
        If the file is missing, or can't be read.

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
            content = json.load(file)
        if content["kind"] != "split" or content["format"] != FORMAT:
            raise ValueError(f"it has format {content['format']!r}")
        saved, parts = {**content["of"]}, content["parts"]
        if content["digest"] != _digest(parts):
            raise ValueError("its parts were changed")
    except FileNotFoundError as error:
        raise MissingFileError("No such file.", path=place) from error
    except OSError as error:
        raise SourceError(
            f"the file must be readable; the system says: {error.strerror}.", path=place
        ) from error
    except (ValueError, TypeError, KeyError, RecursionError) as error:  # UnicodeDecodeError too
        raise DescriptionError(
            f"{place!r} must be what oocdata.save_split writes; it is not: {error}."
        ) from error
    changes = differences(saved, json.loads(dataset_fingerprint(dataset)))
    if changes:
        raise RestoreError(
            f"a split must be loaded for the dataset that it was made of; {'; '.join(changes)} "
            f"({place!r}). Open it as it was then, or split anew."
        )
    return Decoder((), _leaves(dataset)).decode(parts, "parts")


def _digest(parts: Any) -> str:
    return blake2b(json.dumps(parts).encode(), digest_size=16).hexdigest()


def _check_dataset(dataset: Any) -> None:
    if not isinstance(dataset, Dataset):
        raise ArgumentError(f"`dataset` must be what was split; got {dataset!r}.")


def _check_datasets(parts: Any) -> None:
    """Raise if parts contain anything but datasets."""
    if isinstance(parts, dict | tuple | list) and parts:
        for part in parts.values() if isinstance(parts, dict) else parts:
            _check_datasets(part)
    elif not isinstance(parts, Dataset):
        raise ArgumentError(
            f"`parts` must be datasets in tuples, lists and dicts; got {type(parts).__name__}."
        )


def _leaves(dataset: Dataset) -> list[Any]:
    """Return the sources and functions of a dataset, in the order in which they appear.

    Repeats are kept: the same data may be opened once at one time, and twice at another.
    """
    leaves: list[Any] = []
    _Numbered(leaves, grows=True).encode(dataset, "dataset")
    return leaves


class _Numbered(Encoder):
    """Encoder of sources and functions as positions in a list; `grows` appends them to it."""

    def __init__(self, known: list[Any], *, grows: bool = False) -> None:
        super().__init__()
        self._known, self._grows = known, grows

    def leaf(self, value: Any, place: str) -> Any:
        """Return an array as JSON, and any other leaf as its number."""
        if isinstance(value, np.ndarray | np.generic):
            return super().leaf(value, place)
        if self._grows:
            self._known.append(value)
        for number, leaf in enumerate(self._known):
            if leaf is value:
                return {"beside": number}
        raise ArgumentError(
            f"`parts` must be made of `dataset`; `{place}` is not in it. Split the dataset that is "
            "saved, not one opened anew."
        )
