"""Names inside an HDF5 file: what is there, and where a name leads.

Links are followed here, one step at a time, because HDF5 would follow a link into another file
without a word, and any file on the machine can be named by such a link (HDF5 File Format
Specification, IV.A.2.g, the link message).
"""

from __future__ import annotations

import os
from collections import deque
from contextlib import ExitStack
from typing import Any

import h5py
from h5py import h5g, h5l, h5o

from oocdata.errors import (
    ExternalDataError,
    MissingFileError,
    MissingKeyError,
    SourceError,
)
from oocdata.formats.anndata import joined
from oocdata.formats.dimensions import Named, choose_key, data_variables, listed
from oocdata.formats.hdf5.description import dimension_names, is_dimension_only
from oocdata.formats.hdf5.file import find_beside, open_file

__all__ = ["Names", "choose_dataset", "find_dataset", "group_attributes", "list_names"]

_MOST_LINKS = 16
"""Soft links followed for one name: HDF5's own limit (``H5Pset_nlinks``)."""

_NUMBERS = "biufc"


class Names:
    """Names in an open file; no link into another file is followed."""

    def __init__(self, file: Any) -> None:
        self.file, self._links = file, file.id.links
        self._addresses = {"": h5o.get_info(file.id).addr}
        """Of what names lead to by hard links alone."""

    def follow(self, name: str) -> tuple[str, tuple[str, str] | None]:
        """Return a name without the soft links on its way, and where it leaves the file.

        A name that leads out is returned up to the external link, with the file that the link names
        and the path there. One that leads nowhere is a `MissingKeyError`.
        """
        if name in self._addresses:
            return name, None
        steps, here, links = deque(_steps(name)), "", 0
        while steps:
            below = f"{here}/{steps.popleft()}"
            if below in self._addresses:
                here = below
                continue
            # By the whole name: groups that were opened on the way would stay in HDF5's memory.
            try:
                info = self._links.get_info(_encoded(below))
            except (KeyError, RuntimeError, ValueError):
                raise MissingKeyError("it leads nowhere.", path=self.file.filename) from None
            if info.type == h5l.TYPE_HARD:
                self._addresses[below] = info.u
                here = below
                continue
            value = self._links.get_val(_encoded(below))
            if info.type == h5l.TYPE_EXTERNAL:
                return below, (os.fsdecode(value[0]), "/".join((_decoded(value[1]), *steps)))
            target, links = _decoded(value), links + 1
            if links > _MOST_LINKS:
                raise MissingKeyError("it follows more than 16 links.", path=self.file.filename)
            here = "" if target.startswith("/") else here
            steps.extendleft(reversed(_steps(target)))
        return here, None

    def address(self, name: str) -> object:
        """Return what all names of one object in the file have alike; None if it leads nowhere."""
        try:
            end, way_out = self.follow(name)
        except MissingKeyError:
            return None
        return name if way_out else self._addresses[end]

    def opened(self, name: str) -> Any:
        """Return h5py's identifier of what a name leads to in this file, or None.

        Opened again by its name, it raises what keeps it from being opened.
        """
        try:
            name, way_out = self.follow(name)
            return None if way_out else h5o.open(self.file.id, _encoded(name or "/"))
        except (MissingKeyError, KeyError, RuntimeError, ValueError, OSError):
            return None

    def below(self, name: str) -> list[str]:
        """Return the names right below a group; none for what is no group, or in another file."""
        group = self.opened(name)
        if not isinstance(group, h5g.GroupID):
            return []
        found, here, hard = [], self.follow(name)[0], h5l.TYPE_HARD

        def note(link: bytes, info: Any) -> None:
            found.append(_decoded(link))
            if info.type == hard:
                self._addresses[f"{here}/{found[-1]}"] = info.u

        group.links.iterate(note, info=True)
        return found


def _steps(name: str) -> list[str]:
    return [step for step in name.split("/") if step not in ("", ".")]


def _encoded(name: str) -> bytes:
    return name.encode("utf-8", "surrogateescape")


def _decoded(name: bytes) -> str:
    return name.decode("utf-8", "surrogateescape")


def list_names(file: Any, below: str = "") -> list[str]:
    """Return the absolute name of every dataset in an open file, or below a group, sorted.

    Soft links to datasets are listed. External links are listed and not followed. Each group is
    entered once, so a group that holds itself is no loop. A netCDF dimension that has a length and
    no values is no dataset of the user's.
    """
    names = Names(file)
    found: list[str] = []
    groups, seen = deque([below]), {names.address(below)}
    while groups:
        group = groups.popleft()
        for name in [f"{group}/{part}" for part in names.below(group)]:
            try:
                end, way_out = names.follow(name)
            except MissingKeyError:
                continue
            kind = None if way_out else h5g.get_objinfo(file.id, _encoded(end or "/")).type
            if kind is None or (kind == h5g.DATASET and not is_dimension_only(file[end])):
                found.append(name)
            # What a soft link to a group leads to is listed under its own name.
            elif kind == h5g.GROUP and end == name and names.address(name) not in seen:
                seen.add(names.address(name))
                groups.append(name)
    found = joined(found, lambda group: group_attributes(file, group))
    return [name or "/" for name in found]


def group_attributes(file: Any, name: str) -> dict[str, Any] | None:
    """Return the attributes of a group in the file itself that say what it is; None for others."""
    found = Names(file).opened(name)
    if not isinstance(found, h5g.GroupID):
        return None
    attributes = h5py.Group(found).attrs
    known = ("encoding-type", "encoding-version", "shape", "ordered")
    legacy = ("h5sparse_format", "h5sparse_shape")
    return {one: attributes[one] for one in (*known, *legacy) if one in attributes}


def choose_dataset(file: Any) -> str:
    """Return the name of the only dataset that can be opened as an array.

    Scalars, text and empty dataspaces are no candidates; two names of one dataset are one.
    Coordinates (`dimensions.data_variables`) are candidates where there is nothing else. The error
    where there is none, or more than one, lists what is there.
    """
    links, names = Names(file), list_names(file)
    arrays: dict[object, Named] = {}
    for name in names:
        found = links.opened(name)
        if not isinstance(found, h5py.h5d.DatasetID):  # in another file, or a group that is one
            arrays.setdefault(name, Named(name, ()))
        elif _is_array(dataset := h5py.Dataset(found)):
            named = Named.of(name, dimension_names(dataset), dataset.attrs)
            arrays.setdefault(links.address(name), named)
    candidates = data_variables(list(arrays.values()))
    if candidates or not names:
        return choose_key(candidates, None, file.filename)
    if len(names) == 1:
        return names[0]  # opening it says what is wrong with it
    raise MissingKeyError(
        f"the file must hold a dataset; it holds only {listed(names)}, which are no arrays of "
        "numbers.",
        path=file.filename,
    )


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

    Files that external links lead to are closed by `opened`; `links` have been followed so far. The
    error where a name leads nowhere or to a group lists what is there.
    """
    names = Names(file)
    try:
        end, way_out = names.follow(name)
    except MissingKeyError as error:
        raise MissingKeyError(
            f"`key` must name a dataset in the file; got {name!r}: {error.message} The file holds: "
            f"{listed(list_names(file))}.",
            path=file.filename,
        ) from error
    if way_out is not None:
        path = _linked_file(file, name, way_out, external, links)
        other = opened.enter_context(open_file(path))
        return find_dataset(other, way_out[1], external, opened, links + 1)
    found = file[end or "/"]
    if isinstance(found, h5py.Dataset) and not is_dimension_only(found):
        return found, name
    what = "is a type"
    if isinstance(found, h5py.Dataset):
        what = "is a netCDF dimension, which has a length and no values"
    elif isinstance(found, h5py.Group):
        what = f"is a group, which holds: {listed(list_names(file, end))}"
    raise MissingKeyError(f"`key` must name a dataset; {name!r} {what}.", path=file.filename)


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
