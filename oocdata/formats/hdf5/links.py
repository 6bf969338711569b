"""Names inside an HDF5 file: what is there, and where a name leads.

Links are followed here, one component at a time, because HDF5 would follow a link into another file
without a word, and any file on the machine can be named by such a link (HDF5 File Format
Specification, IV.A.2.g, the link message).
"""

from __future__ import annotations

import os
from collections import deque
from contextlib import ExitStack
from typing import Any

from oocdata.errors import (
    ExternalDataError,
    MissingFileError,
    MissingKeyError,
    SeveralDatasetsError,
    SourceError,
)
from oocdata.formats.anndata import joined
from oocdata.formats.dimensions import Named, data_variables
from oocdata.formats.hdf5.description import dimension_names, is_dimension_only
from oocdata.formats.hdf5.file import find_beside, hdf5_library, open_file
from oocdata.formats.hdf5.storage import raw_folder

__all__ = [
    "choose_dataset", "external_link", "find_dataset", "group_attributes", "list_names",
    "values_of",
]  # fmt: skip

_MOST_LINKS = 16
"""Soft links followed for one name: HDF5's own limit (``H5Pset_nlinks``)."""

_NUMBERS = "biufc"


def list_names(file: Any) -> list[str]:
    """Return the absolute name of every dataset in an open file, sorted.

    Soft links to datasets are listed. External links are listed and not followed. Each group is
    entered once, so a group that holds itself is no loop. A netCDF dimension that has a length and
    no values is no dataset of the user's.
    """
    h5py = hdf5_library()
    names: list[str] = []
    soft: list[str] = []
    seen: set[Any] = set()
    groups: deque[tuple[str, Any]] = deque([("", file["/"])])
    while groups:
        prefix, group = groups.popleft()
        address = h5py.h5o.get_info(group.id).addr
        if address in seen:
            continue
        seen.add(address)
        for part in group:
            name = f"{prefix}/{part}"
            link = group.get(part, getlink=True)
            if isinstance(link, h5py.ExternalLink):
                names.append(name)
            elif isinstance(link, h5py.SoftLink):
                soft.append(name)
            else:
                kind = group.get(part, getclass=True)
                if kind is h5py.Group:
                    groups.append((name, group[part]))
                elif kind is h5py.Dataset and not is_dimension_only(_member(group, part)):
                    names.append(name)
    # What a soft link to a group leads to was listed under its own name.
    for name in soft:
        try:
            outside = external_link(file, name)
        except MissingKeyError:
            continue
        if outside is not None or file.get(name, getclass=True) is h5py.Dataset:
            names.append(name)
    found = joined(names, lambda group: group_attributes(file, group or "/"))
    return [name or "/" for name in found]


def group_attributes(file: Any, name: str) -> dict[str, Any] | None:
    """Return the attributes of a group in the file itself that say what it is; None for others."""
    h5py = hdf5_library()
    try:
        if external_link(file, name) is not None:
            return None
    except MissingKeyError:
        return None
    if file.get(name, getclass=True) is not h5py.Group:
        return None
    attributes = file[name].attrs
    known = ("encoding-type", "encoding-version", "shape", "ordered")
    legacy = ("h5sparse_format", "h5sparse_shape")
    return {one: attributes[one] for one in (*known, *legacy) if one in attributes}


def values_of(file: Any, name: str) -> list[Any]:
    """Return all values of a dataset of one axis, text as such."""
    dataset = file[name]
    text = hdf5_library().check_string_dtype(dataset.dtype) is not None
    values: list[Any] = (dataset.asstr() if text else dataset)[()].tolist()
    return values


def external_link(file: Any, name: str) -> tuple[str, str] | None:
    """Return where a name leaves the file through an external link, or None; nothing is opened.

    Returns
    -------
    filename, target : str
        The file that the link names, and its path there with what follows the link in the name.

    Raises
    ------
    oocdata.errors.MissingKeyError
        If the name leads nowhere.
    """
    h5py = hdf5_library()
    parts = deque(part for part in name.split("/") if part not in ("", "."))
    group, links = file["/"], 0
    while parts:
        part = parts.popleft()
        link = group.get(part, getlink=True) if isinstance(group, h5py.Group) else None
        if link is None:
            raise MissingKeyError("it leads nowhere.", path=file.filename)
        if isinstance(link, h5py.ExternalLink):
            return link.filename, "/".join((link.path, *parts))
        if isinstance(link, h5py.SoftLink):
            links += 1
            if links > _MOST_LINKS:
                raise MissingKeyError("it follows more than 16 links.", path=file.filename)
            if link.path.startswith("/"):
                group = file["/"]
            parts.extendleft(
                reversed([step for step in link.path.split("/") if step not in ("", ".")])
            )
            continue
        group = _member(group, part)
    return None


def choose_dataset(file: Any) -> str:
    """Return the name of the only dataset that can be opened as an array.

    Scalars, text and empty dataspaces are no candidates; two names of one dataset are one.
    Coordinates (`dimensions.data_variables`) are candidates where there is nothing else.

    Raises
    ------
    oocdata.errors.MissingKeyError, oocdata.errors.SeveralDatasetsError
        The message lists what is there.
    """
    names = list_names(file)
    arrays: dict[object, Named] = {}
    for name in names:
        if external_link(file, name) is not None:
            arrays.setdefault(name, Named(name, ()))
            continue
        dataset = _member(file, name)
        if isinstance(dataset, hdf5_library().Group):  # one that is one array
            arrays.setdefault(name, Named(name, ()))
        elif _is_array(dataset):
            address = hdf5_library().h5o.get_info(dataset.id).addr
            named = Named.of(name, dimension_names(dataset), dataset.attrs)
            arrays.setdefault(address, named)
    candidates = data_variables(list(arrays.values()))
    if len(candidates) == 1:
        return candidates[0]
    if candidates:
        raise SeveralDatasetsError(
            f"`key` must be given, because the file holds several datasets: {_listed(candidates)}.",
            path=file.filename,
        )
    if len(names) == 1:
        return names[0]  # opening it says what is wrong with it
    held = f"only {_listed(names)}, which are no arrays of numbers" if names else "none"
    raise MissingKeyError(f"the file must hold a dataset; it holds {held}.", path=file.filename)


def _member(group: Any, name: str) -> Any:
    """Return what has a name, even while a reader holds it whose external files have a folder."""
    try:
        return group[name]
    except KeyError as error:
        h5py = hdf5_library()
        access = h5py.h5p.create(h5py.h5p.DATASET_ACCESS)
        access.set_efile_prefix(os.fsencode(raw_folder(group.file.filename)))
        try:
            # HDF5 opens a dataset once in a process, and only in the same way again.
            found = h5py.h5d.open(group.id, name.encode("utf-8", "surrogateescape"), access)
        except (KeyError, ValueError, RuntimeError, OSError):
            raise error from None
        return h5py.Dataset(found)


def _is_array(dataset: Any) -> bool:
    """Return whether it is an array of numbers."""
    try:
        return bool(dataset.shape) and dataset.dtype.kind in _NUMBERS
    except TypeError:  # no NumPy dtype
        return False


def find_dataset(
    file: Any, name: str, external: bool, opened: ExitStack, links: int = 0
) -> tuple[Any, str]:
    """Return the dataset of a name and its name in the file where it lies, ``dataset.file``.

    Parameters
    ----------
    external : bool
        Whether external links may be followed, into another file.
    opened : contextlib.ExitStack
        Closes the files that external links lead to.
    links : int
        External links followed so far.

    Raises
    ------
    oocdata.errors.ExternalDataError
        If the name passes through an external link and `external` is false.
    oocdata.errors.MissingFileError
        If the file it links to is not there.
    oocdata.errors.MissingKeyError
        If it leads nowhere or to a group; the message lists what is there.
    """
    h5py = hdf5_library()
    try:
        way_out = external_link(file, name)
    except MissingKeyError as error:
        raise MissingKeyError(
            f"`key` must name a dataset in the file; got {name!r}: {error.message} The file holds: "
            f"{_listed(list_names(file)) or 'no dataset'}.",
            path=file.filename,
        ) from error
    if way_out is not None:
        path = _linked_file(file, name, way_out, external, links)
        other = opened.enter_context(open_file(path))
        return find_dataset(other, way_out[1], external, opened, links + 1)
    found = _member(file, name)
    if isinstance(found, h5py.Dataset):
        if is_dimension_only(found):
            raise MissingKeyError(
                f"`key` must name a dataset; {name!r} is a netCDF dimension, which has a length "
                "and no values.",
                path=file.filename,
            )
        return found, name
    if isinstance(found, h5py.Group):
        below = [f"{name.rstrip('/')}/{part}" for part in found if not _is_dimension(found, part)]
        raise MissingKeyError(
            f"`key` must name a dataset; {name!r} is a group, which holds: "
            f"{_listed(below) or 'nothing'}.",
            path=file.filename,
        )
    raise MissingKeyError(f"`key` must name a dataset; {name!r} is a type.", path=file.filename)


def _is_dimension(group: Any, part: str) -> bool:
    """Return whether a group's member is a netCDF dimension without values; follows no link."""
    h5py = hdf5_library()
    return (
        isinstance(group.get(part, getlink=True), h5py.HardLink)
        and group.get(part, getclass=True) is h5py.Dataset
        and is_dimension_only(_member(group, part))
    )


def _linked_file(file: Any, name: str, way_out: tuple[str, str], external: bool, links: int) -> str:
    filename, target = way_out
    kind: type[SourceError] = ExternalDataError
    if not external:
        message = (
            f"the dataset must lie in the file itself; it is linked from {filename!r} "
            f"({target!r}). If you trust the file, pass external=True."
        )
    elif links >= _MOST_LINKS:
        kind = MissingKeyError
        message = f"`key` must lead to a dataset; it follows more than {_MOST_LINKS} links."
    else:
        path = find_beside(file.filename, filename, "HDF5_EXT_PREFIX")
        if path is not None:
            return path
        kind = MissingFileError
        message = f"the file of an external link must be there; {filename!r} is not."
    raise kind(message, path=file.filename, key=name)


def _listed(names: list[str]) -> str:
    return ", ".join(repr(name) for name in names[:20]) + (", …" if len(names) > 20 else "")
