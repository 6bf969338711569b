"""What a pattern may match in an open file: names that links lead to, one look at each."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

from oocdata.errors import MissingKeyError
from oocdata.formats.hdf5.file import hdf5_library
from oocdata.formats.hdf5.links import external_link

__all__ = ["Names"]

Way: TypeAlias = Literal["hard", "soft", "external", ""]


class Names:
    """Names in an open file. No external link is followed.

    Parameters
    ----------
    file : h5py.File
    path : str
    """

    def __init__(self, file: Any, path: str) -> None:
        self.file, self.path, self.library = file, path, hdf5_library()
        self._ways: dict[str, Way] = {"": "hard"}
        self._links = file.id.links

    def way(self, name: str) -> Way:
        """Return by what kind of links an absolute name leads to something; empty: to nothing."""
        known = self._ways.get(name)
        if known is None:
            known = self._ways[name] = self._way(name)
        return known

    def _way(self, name: str) -> Way:
        way = self.way(name.rpartition("/")[0])
        if way in ("", "external"):
            return way
        if way == "hard":
            # By the whole name: groups that were opened on the way would stay in HDF5's memory.
            try:
                kind = self._links.get_info(_encoded(name)).type
            except (KeyError, RuntimeError, ValueError):
                return ""
            if kind == self.library.h5l.TYPE_HARD:
                return "hard"
        try:
            return "soft" if external_link(self.file, name) is None else "external"
        except MissingKeyError:
            return ""

    def opened(self, name: str) -> Any:
        """Return h5py's identifier of what a name leads to that `is_here`; None where it can't."""
        try:
            return self.library.h5o.open(self.file.id, _encoded(name or "/"))
        except (KeyError, RuntimeError, ValueError, OSError):
            return None  # opening it alone says why

    def is_here(self, name: str) -> bool:
        """Return whether a name leads to something in this file."""
        return self.way(name) in ("hard", "soft")

    def below(self, name: str) -> list[str]:
        """Return the names right below a group; none for what is no group, or in another file."""
        group = self.opened(name) if self.is_here(name) else None
        if not isinstance(group, self.library.h5g.GroupID):
            return []
        found, hard = [], self.library.h5l.TYPE_HARD
        all_hard = self.way(name) == "hard"

        def note(link: bytes, info: Any) -> None:
            below = link.decode("utf-8", "surrogateescape")
            found.append(below)
            if all_hard and info.type == hard:
                self._ways[f"{name}/{below}"] = "hard"

        group.links.iterate(note, info=True)
        return found


def _encoded(name: str) -> bytes:
    return name.encode("utf-8", "surrogateescape")
