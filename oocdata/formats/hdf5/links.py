"""List the names in an HDF5 file, and resolve names to datasets.

Links are followed here step by step, because HDF5 would silently follow an external link, which can
name any file on the machine (HDF5 File Format Specification, IV.A.2.g, the link message).
"""

from __future__ import annotations

import os
from collections import deque
from contextlib import ExitStack
from typing import Any

import h5py
from h5py import h5d, h5g, h5l, h5o, h5t
from numpy.typing import NDArray

from oocdata.errors import ExternalDataError, MissingFileError, MissingKeyError, error_location
from oocdata.formats.anndata import merge_groups
from oocdata.formats.dimensions import Named, choose_key, data_variables, quoted
from oocdata.formats.hdf5.description import dimension_names, is_dimension_only
from oocdata.formats.hdf5.file import find_external_file, open_file

__all__ = [
    "NameResolver", "choose_dataset", "find_dataset", "first_field", "group_attributes",
    "list_names",
]  # fmt: skip

_MOST_LINKS = 16
"""Most soft links on the way of one name; HDF5's default limit (``H5Pset_nlinks``)."""

_NUMBERS = "biufc"


class NameResolver:
    """Resolver of names in an open file, which follows no external links."""

    def __init__(self, file: Any) -> None:
        self.file, self._links = file, file.id.links
        self._addresses = {"": h5o.get_info(file.id).addr}
        """Addresses of objects, by names that consist of hard links only."""

    def follow(self, name: str) -> tuple[str, tuple[str, str] | None]:
        """Return a name with its soft links resolved, and the target of an external link or None.

        If the name passes through an external link, the result is the name up to this link, and the
        link's file with the path in it. A name that leads nowhere is a `MissingKeyError`.
        """
        if name in self._addresses:
            return name, None
        steps, here, links = deque(_steps(name)), "", 0
        while steps:
            below = f"{here}/{steps.popleft()}"
            if below in self._addresses:
                here = below
                continue
            # By the whole name, because HDF5 would keep the groups opened on the way in memory.
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
        """Return a value that is equal for all names of one object; None if the name is broken.

        It is the object's address, or the name itself if that leads to another file.
        """
        try:
            end, external_target = self.follow(name)
        except MissingKeyError:
            return None
        return name if external_target else self._addresses[end]

    def opened(self, name: str) -> Any:
        """Return h5py's identifier of the object at a name in this file; None if there is none.

        It is None too if the object can't be opened; `find_dataset` raises the reason.
        """
        try:
            name, external_target = self.follow(name)
            return None if external_target else h5o.open(self.file.id, _encoded(name or "/"))
        except (MissingKeyError, KeyError, RuntimeError, ValueError, OSError):
            return None

    def below(self, name: str) -> list[str]:
        """Return the names of a group's children; none if there is no such group in this file."""
        group = self.opened(name)
        if not isinstance(group, h5g.GroupID):
            return []
        children, here, hard = [], self.follow(name)[0], h5l.TYPE_HARD

        def note(link: bytes, info: Any) -> None:
            children.append(_decoded(link))
            if info.type == hard:
                self._addresses[f"{here}/{children[-1]}"] = info.u

        group.links.iterate(note, info=True)
        return children


def _steps(name: str) -> list[str]:
    return [step for step in name.split("/") if step not in ("", ".")]


def _encoded(name: str) -> bytes:
    return name.encode("utf-8", "surrogateescape")


def _decoded(name: bytes) -> str:
    return name.decode("utf-8", "surrogateescape")


def list_names(file: Any, below: str = "") -> list[str]:
    """Return the sorted absolute names of all datasets in an open file, or below a group.

    Soft links to datasets are listed, and so are external links, without following them. Each
    group is visited once, so cycles end. NetCDF dimensions without values are left out, and so are
    PyTables' indices of tables.
    """
    names = NameResolver(file)
    listing: list[str] = []
    groups, seen = deque([below]), {names.address(below)}
    while groups:
        group = groups.popleft()
        for name in [f"{group}/{part}" for part in names.below(group)]:
            try:
                end, external_target = names.follow(name)
            except MissingKeyError:
                continue
            kind = None if external_target else h5g.get_objinfo(file.id, _encoded(end or "/")).type
            if kind is None or (kind == h5g.DATASET and not is_dimension_only(file[end])):
                listing.append(name)
            # A group's datasets are listed under its own name, not under a soft link to it.
            elif kind == h5g.GROUP and end == name and names.address(name) not in seen:
                seen.add(names.address(name))
                if not ("/_i_" in name and file[end].attrs.get("CLASS") == b"TINDEX"):
                    groups.append(name)
    listing = merge_groups(listing, lambda group: group_attributes(file, group))
    return [name or "/" for name in listing]


def group_attributes(file: Any, name: str) -> dict[str, Any] | None:
    """Return AnnData's attributes of a group in this file; None if there is no such group."""
    group = NameResolver(file).opened(name)
    if not isinstance(group, h5g.GroupID):
        return None
    attributes = h5py.Group(group).attrs
    known = ("encoding-type", "encoding-version", "shape", "ordered", "_index")
    legacy = ("h5sparse_format", "h5sparse_shape")
    return {key: attributes[key] for key in (*known, *legacy) if key in attributes}


def first_field(file: Any, name: str) -> NDArray[Any] | None:
    """Return the first field of a dataset of rows, as texts; see `opening.first_field`."""
    opened = NameResolver(file).opened(name)
    if not isinstance(opened, h5d.DatasetID) or opened.get_type().get_class() != h5t.COMPOUND:
        return None
    field = opened.get_type().get_member_name(0).decode()
    texts: NDArray[Any] = h5py.Dataset(opened).fields(field)[()]
    return texts.astype("S") if h5py.check_string_dtype(texts.dtype) else None


def choose_dataset(file: Any) -> str:
    """Return the name of the only dataset that can be opened as an array.

    Scalars, text and empty dataspaces are not considered, nor further names of a dataset.
    Coordinates (see `dimensions.data_variables`) are considered only if there is nothing else, and
    so are others. If there is not exactly one candidate, the error lists the datasets.
    """
    links, names = NameResolver(file), list_names(file)
    arrays: dict[object, Named] = {}
    for name in names:
        opened = links.opened(name)
        if not isinstance(opened, h5d.DatasetID):  # in another file, or one array as a group
            arrays.setdefault(name, Named(name, ()))
        elif _is_array(dataset := h5py.Dataset(opened)):
            named = Named.of(name, dimension_names(dataset), dataset.attrs)
            arrays.setdefault(links.address(name), named)
    # Opening one that is no array raises the reason.
    return choose_key(data_variables(list(arrays.values())) or names, None, file.filename)


def _is_array(dataset: Any) -> bool:
    """Return whether a dataset is an array of numbers."""
    try:
        return bool(dataset.shape) and dataset.dtype.kind in _NUMBERS
    except TypeError:  # no corresponding NumPy dtype
        return False


def find_dataset(
    file: Any, name: str, external: bool, opened: ExitStack, links: int = 0
) -> tuple[Any, str]:
    """Return the dataset at a name, and its name in the file that holds it, ``dataset.file``.

    External links are followed if `external` is set: `opened` closes their files, and `links` is
    the number followed so far. If the name leads to no dataset, the error lists the datasets.
    """
    names = NameResolver(file)
    try:
        end, external_target = names.follow(name)
    except MissingKeyError as error:
        raise MissingKeyError(
            f"`key` must name a dataset in the file; got {name!r}: {error.message} The file holds: "
            f"{quoted(list_names(file))}.",
            path=file.filename,
        ) from error
    if external_target is not None:
        path = _linked_file(file, name, external_target, external, links)
        other = opened.enter_context(open_file(path))
        return find_dataset(other, external_target[1], external, opened, links + 1)
    target = file[end or "/"]
    if isinstance(target, h5py.Dataset) and not is_dimension_only(target):
        return target, name
    what = "is a type"
    if isinstance(target, h5py.Dataset):
        what = "is a netCDF dimension, which has a length and no values"
    elif isinstance(target, h5py.Group):
        what = f"is a group, which holds: {quoted(list_names(file, end))}"
    raise MissingKeyError(f"`key` must name a dataset; {name!r} {what}.", path=file.filename)


def _linked_file(file: Any, name: str, link: tuple[str, str], external: bool, links: int) -> str:
    """Return the path of an external link's file; raise if it is missing or not allowed."""
    filename, target = link
    with error_location(file.filename, name):
        if not external:
            raise ExternalDataError(
                f"the dataset must lie in the file itself; it is linked from {filename!r} "
                f"({target!r}). If you trust the file, pass external=True."
            )
        if links >= _MOST_LINKS:
            raise MissingKeyError(
                f"`key` must lead to a dataset; it follows more than {_MOST_LINKS} links."
            )
        path = find_external_file(file.filename, filename, "HDF5_EXT_PREFIX")
        if path is None:
            raise MissingFileError(
                f"the file of an external link must be there; {filename!r} is not."
            )
        return path
