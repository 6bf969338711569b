"""Save the parts of a split in a small JSON file, with a fingerprint of the dataset.

Parts are written like descriptions, but a source or function is its number among those of the
dataset. So loading opens and imports nothing, and the data may have moved. The parts have a digest:
in a file that was edited, elements of a zip might go together with others.
"""

from __future__ import annotations

import json
import os
from typing import Any

import numpy as np

from oocdata.datasets.dataset import Dataset
from oocdata.describe.content import digest
from oocdata.describe.decoding import Decoder
from oocdata.describe.encoding import Encoder
from oocdata.describe.fingerprints import dataset_fingerprint, differences
from oocdata.engines.atomic import atomic_file, write_errors
from oocdata.errors import (
    ArgumentError,
    DescriptionError,
    MissingFileError,
    RestoreError,
    SourceError,
)
from oocdata.index import as_path

FORMAT = 4
"""Version of the form of the file."""


def save_split(path: str | os.PathLike[str], dataset: Dataset, parts: Any) -> None:
    """Write which elements the parts of a dataset have to a small JSON file.

    Parameters
    ----------
    path : path
        Of a file that does not exist yet.
    dataset : Dataset
        The dataset that was split; `load_split` needs the same.
    parts : tuple, list or dict of Dataset
        Made from `dataset` by `Dataset.split`, `Dataset.split_at`, `Dataset.folds` or selections;
        may be nested.

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
    described = _OfDataset(dataset).encode(parts, "parts")
    of = json.loads(dataset_fingerprint(dataset))
    node = {"kind": "split", "format": FORMAT, "of": of, "digest": digest(json.dumps(described))}
    text = json.dumps({**node, "parts": described})
    if os.path.lexists(place):
        raise ArgumentError(f"`path` must not be there yet; {place!r} is. Delete it to save anew.")
    with write_errors(place), atomic_file(place) as file:
        file.write(text.encode("ascii"))


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
        if content["digest"] != digest(json.dumps(parts)):
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


class _OfDataset(Encoder):
    """Encoder of sources and functions as their numbers among those of the dataset that is split.

    Repeats are numbered too: data may be opened once when saved, and twice when loaded.
    """

    def __init__(self, dataset: Dataset) -> None:
        super().__init__()
        self._known = _leaves(dataset)

    def leaf(self, value: Any, place: str) -> Any:
        for number, leaf in enumerate(self._known):
            if leaf is value:
                return {"beside": number}
        if isinstance(value, np.ndarray | np.generic):
            return super().leaf(value, place)
        raise ArgumentError(
            f"`parts` must be made of `dataset`; `{place}` is not in it. Split the dataset that is "
            "saved, not one opened anew."
        )


def _leaves(dataset: Dataset) -> list[Any]:
    leaves: list[Any] = []
    Encoder(leaves).encode(dataset, "dataset")
    return leaves
