"""What a pattern may match in an open file: names that links lead to, one look at each."""

from __future__ import annotations

from typing import Any, Literal

from oocdata.errors import MissingKeyError
from oocdata.formats.hdf5.file import hdf5_library
from oocdata.formats.hdf5.links import external_link

__all__ = ["Names"]


class Names:
    """Names in an open file. No external link is followed.

    Parameters
    ----------
    file : h5py.File
    path : str
    """

    def __init__(self, file: Any, path: str) -> None:
        self.file, self.path = file, path
        self._links: dict[str, Literal["hard", "soft", "external", ""]] = {"": "hard"}

    def link(self, name: str) -> Literal["hard", "soft", "external", ""]:
        """Return by what kind of links an absolute name leads to something; empty: to nothing."""
        above = name.rpartition("/")[0]
        way = self._links.get(above)
        if way is None:
            way = self._links[above] = self.link(above)
        if way in ("", "external"):
            return way
        if way == "hard":
            h5l = hdf5_library().h5l
            try:
                kind = self.file.id.links.get_info(_encoded(name)).type
            except (KeyError, RuntimeError, ValueError):
                return ""
            if kind == h5l.TYPE_HARD:
                return "hard"
        try:
            return "soft" if external_link(self.file, name) is None else "external"
        except MissingKeyError:
            return ""

    def is_here(self, name: str) -> bool:
        """Return whether a name leads to something in this file."""
        return self.link(name) in ("hard", "soft")

    def kind(self, name: str) -> Literal["dataset", "group", ""]:
        """Return what a name leads to; what lies in another file is taken for a dataset."""
        way = self.link(name)
        if way in ("", "external"):
            return "dataset" if way else ""
        h5py = hdf5_library()
        found = h5py.h5o.open(self.file.id, _encoded(name))
        if isinstance(found, h5py.h5d.DatasetID):
            return "dataset"
        return "group" if isinstance(found, h5py.h5g.GroupID) else ""

    def dataset(self, name: str) -> Any:
        """Return the ``h5py.h5d.DatasetID`` of a name that only hard links lead to, or None."""
        if self.link(name) != "hard":
            return None
        h5py = hdf5_library()
        try:
            found = h5py.h5o.open(self.file.id, _encoded(name))
        except (KeyError, RuntimeError, ValueError, OSError):
            return None  # opening it alone says why
        return found if isinstance(found, h5py.h5d.DatasetID) else None

    def below(self, group: str) -> list[str]:
        """Return the names right below a group; none for what is no group."""
        if group and (self.link(group) in ("", "external") or self.kind(group) != "group"):
            return []
        return list(self.file[group or "/"])

    def address(self, name: str) -> object:
        """Return what two names of one dataset share."""
        if not self.is_here(name):
            return name
        h5o = hdf5_library().h5o
        return h5o.get_info(self.file.id, _encoded(name)).addr


def _encoded(name: str) -> bytes:
    return name.encode("utf-8", "surrogateescape")
