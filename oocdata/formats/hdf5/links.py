"""Resolve names in an HDF5 file to its objects.

Links are followed here step by step, because HDF5 would silently follow an external link, which can
name any file on the machine (HDF5 File Format Specification, IV.A.2.g, the link message).
"""

from __future__ import annotations

import os
from collections import deque
from contextlib import ExitStack, suppress
from dataclasses import replace
from typing import Any, Self

import h5py
from h5py import h5d, h5g, h5l, h5o

from oocdata.engines.source import Annotations
from oocdata.errors import (
    ExternalDataError,
    MissingFileError,
    MissingKeyError,
    UnsupportedDtypeError,
    error_location,
)
from oocdata.formats.anndata import Group, merge_groups
from oocdata.formats.hdf5.description import (
    annotations_of,
    dimension_names,
    is_dimension_only,
)
from oocdata.formats.hdf5.file import find_external_file, open_file, translate_errors
from oocdata.formats.paths import absolute
from oocdata.formats.tree import Array, Tree, absolute_name

_NO_COORDINATE = "_nc4_non_coord_"
"""What netCDF4 stores before the name of a variable that has the name of a dimension but is not its
coordinate, because the dimension is stored under that name (netCDF-C, ``NON_COORD_PREPEND``)."""

_MOST_LINKS = 16
"""Most soft links on the way of one name; HDF5's default limit (``H5Pset_nlinks``)."""


class Hdf5Names(Tree):
    """The names in an HDF5 file, and the datasets at them.

    `file` is the ``h5py.File`` at `path` if the user has it open; else it is opened, and closed at
    the end of the context. `links` is the number of external links that led here; with `external`,
    such may be followed.
    """

    root = "/"

    def __init__(
        self, path: str, *, external: bool = False, file: Any = None, links: int = 0
    ) -> None:
        super().__init__(absolute(path) if file is None else path, external=external)
        self.file, self.external, self._links = file, external, links
        self._addresses: dict[str, int] = {}
        """Addresses of objects, by names that consist of hard links only."""

    def __enter__(self) -> Self:
        if self.file is None:
            self.file = self._opened.enter_context(open_file(self.path))
        self._opened.enter_context(translate_errors(self.path))
        return self

    def follow(self, name: str) -> tuple[str, tuple[str, str] | None]:
        """Return a name with its soft links resolved, and the target of an external link or None.

        If the name passes through an external link, the result is the name up to this link, and the
        link's file with the path in it. A name that leads nowhere is a `MissingKeyError`; of a
        damaged group, h5py's error is raised.
        """
        if name in self._addresses:
            return name, None
        steps, here, links = deque(_steps(name)), "", 0
        while steps:
            step = steps.popleft()
            below = f"{here}/{step}"
            if below in self._addresses:
                here = below
                continue
            # By the whole name, because HDF5 would keep the groups opened on the way in memory.
            try:
                info = self.file.id.links.get_info(_encoded(below))
            except (KeyError, RuntimeError, ValueError):
                group = self._object(here)  # raises if it is damaged, and so does `exists`
                if isinstance(group, h5g.GroupID) and group.links.exists(_encoded(step)):
                    raise
                raise MissingKeyError("it leads nowhere.", path=self.file.filename) from None
            if info.type == h5l.TYPE_HARD:
                self._addresses[below] = info.u
                here = below
                continue
            value = self.file.id.links.get_val(_encoded(below))
            if info.type == h5l.TYPE_EXTERNAL:
                return below, (os.fsdecode(value[0]), "/".join((_decoded(value[1]), *steps)))
            target, links = _decoded(value), links + 1
            if links > _MOST_LINKS:
                raise MissingKeyError("it follows more than 16 links.", path=self.file.filename)
            here = "" if target.startswith("/") else here
            steps.extendleft(reversed(_steps(target)))
        return here, None

    def identity(self, name: str) -> object:
        """Return the address of the object at a name; a name for one in another file."""
        end, external_target = self.follow(name)
        return name if external_target else self._addresses.get(end, end)

    def _object(self, name: str) -> Any:
        found = h5o.open(self.file.id, _encoded(name or "/"))
        if isinstance(found, h5d.DatasetID) and is_dimension_only(h5py.Dataset(found)):
            group, _, last = name.rpartition("/")
            with suppress(KeyError):
                return h5o.open(self.file.id, _encoded(f"{group}/{_NO_COORDINATE}{last}"))
        return found

    def look(self, name: str) -> Any:
        """Return a `Group`, None, or h5py's identifier of a dataset; see `Tree`.

        True if the name leads to another file, or to what can't be opened.
        """
        try:
            end, external_target = self.follow(absolute_name(name))
        except MissingKeyError:
            return None
        if external_target is None:
            with suppress(KeyError, RuntimeError, ValueError, OSError):
                found = self._object(end)
                is_group = isinstance(found, h5g.GroupID)
                return Group(h5py.Group(found).attrs) if is_group else found
        return True

    def below(self, group: str) -> list[str]:
        """Return the names of a group's children; none if there is no such group in this file.

        Raises h5py's error if the group is damaged: a pattern must not leave out what is in it.
        """
        try:
            here, external_target = self.follow(group)
        except MissingKeyError:
            return []
        opened = None if external_target else self._object(here)
        if not isinstance(opened, h5g.GroupID):
            return []
        children, hard = dict[str, None](), h5l.TYPE_HARD

        def note(link: bytes, info: Any) -> None:
            child = _decoded(link)
            children[child.removeprefix(_NO_COORDINATE)] = None
            if info.type == hard:
                self._addresses[f"{here}/{child}"] = info.u

        opened.links.iterate(note, info=True)
        return list(children)

    def names(self) -> list[str]:
        """Return the sorted absolute names of all datasets.

        Soft links to datasets are listed, and so are external links, without following them. Each
        group is visited once, so cycles end. NetCDF dimensions without values are left out, and so
        are PyTables' indices of tables.
        """
        listing: list[str] = []
        groups, seen = deque([""]), {h5o.get_info(self.file.id).addr}
        while groups:
            group = groups.popleft()
            for name in [f"{group}/{part}" for part in self.below(group)]:
                try:
                    end, external_target = self.follow(name)
                except MissingKeyError:
                    continue
                found = None if external_target else self._object(end)
                if found is None or (
                    isinstance(found, h5d.DatasetID) and not is_dimension_only(h5py.Dataset(found))
                ):
                    listing.append(name)
                # A group's datasets are listed under its own name, not under a soft link to it.
                elif isinstance(found, h5g.GroupID) and end == name:
                    is_index = "/_i_" in name and h5py.Group(found).attrs.get("CLASS") == b"TINDEX"
                    if self._addresses[name] not in seen and not is_index:
                        groups.append(name)
                    seen.add(self._addresses[name])
        listing = merge_groups(listing, lambda group: self.file[group or "/"].attrs)
        return [name or "/" for name in listing]

    def array(self, name: str) -> Array | None:
        """Return the metadata of a dataset in this file; see `Tree`."""
        found = self.look(name)
        if not isinstance(found, h5d.DatasetID):
            return None
        dataset = h5py.Dataset(found)
        try:
            dtype = dataset.dtype
        except TypeError as error:
            raise UnsupportedDtypeError("NumPy has no such dtype.") from error
        return Array(dataset.shape or (), dtype, dimension_names(dataset), dataset.attrs)

    def dataset(self, name: str, opened: ExitStack | None = None) -> tuple[Any, str]:
        """Return the dataset at a name, and its name in the file that holds it, ``dataset.file``.

        `opened` closes the files that external links lead to; by default they are closed with this
        one. If the name leads to no dataset, the error lists the datasets.
        """
        name = f"/{name.strip('/')}"
        try:
            end, external_target = self.follow(name)
        except MissingKeyError as error:
            raise self.missing(name, f": {error.message.rstrip('.')}") from None
        if external_target is not None:
            path = self._linked_file(name, external_target)
            other = Hdf5Names(path, external=self.external, links=self._links + 1)
            return (opened or self._opened).enter_context(other).dataset(external_target[1])
        found = self._object(end)
        if isinstance(found, h5d.DatasetID):
            dataset = h5py.Dataset(found)
            if not is_dimension_only(dataset):
                return dataset, dataset.name if _NO_COORDINATE in dataset.name else name
        raise self.missing(name)

    def missing(self, name: str, why: str = "") -> MissingKeyError:
        """Return the error for a name without an array; see `Tree`."""
        found = self.look(name)
        if isinstance(found, Group):  # its datasets are listed under its own name
            name = self.follow(absolute_name(name))[0] or "/"
        elif found is not None and found is not True:
            why = ", which holds no values: a type, or a dimension of netCDF"
        return super().missing(name, why)

    def _linked_file(self, name: str, link: tuple[str, str]) -> str:
        """Return the path of an external link's file; raise if it is missing or not allowed."""
        filename, target = link
        with error_location(self.path, name):
            if not self.external:
                raise ExternalDataError(
                    f"the dataset must lie in the file itself; it is linked from {filename!r} "
                    f"({target!r}). If you trust the file, pass external=True."
                )
            if self._links >= _MOST_LINKS:
                raise MissingKeyError(
                    f"`key` must lead to a dataset; it follows more than {_MOST_LINKS} links."
                )
            path = find_external_file(self.path, filename, "HDF5_EXT_PREFIX")
            if path is None:
                raise MissingFileError(
                    f"the file of an external link must be there; {filename!r} is not."
                )
            return path


def units_of(dataset: Any) -> dict[str, Any]:
    """Return the units of bounds from their coordinate; see `Tree.units_of_bounds`."""
    shape = dataset.shape or ()
    if shape[-1:] != (2,):
        return {}
    names = Hdf5Names("", file=dataset.file)
    return names.units_of_bounds(dataset.name or "", shape, dimension_names(dataset))


def annotated(dataset: Any) -> Annotations:
    """Return the annotations of an open dataset; those of bounds with `units_of`."""
    found = annotations_of(dataset)
    return replace(found, attributes={**units_of(dataset), **found.attributes})


def _steps(name: str) -> list[str]:
    return [step for step in name.split("/") if step not in ("", ".")]


def _encoded(name: str) -> bytes:
    return name.encode("utf-8", "surrogateescape")


def _decoded(name: bytes) -> str:
    return name.decode("utf-8", "surrogateescape")
