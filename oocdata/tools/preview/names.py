"""What a file says of an array besides its numbers: names of the axes, and the unit.

The unit is the attribute ``units`` of the CF conventions (section 3.1).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from oocdata.datasets.view import View
from oocdata.errors import SourceError

__all__ = ["Named", "names_in_file"]


@dataclass(frozen=True, slots=True)
class Named:
    """What a file calls an array's axes, and its unit.

    Attributes
    ----------
    axes : tuple of str or None
        Of a row's axes as delivered, None for one without a name; None where no axis has one.
    unit : str or None
    """

    axes: tuple[str | None, ...] | None = None
    unit: str | None = None


def names_in_file(view: View) -> Named:
    """Return what the file of a view says of its axes and unit; of several files, the first.

    Examples
    --------
    >>> import tempfile, h5py, oocdata as ooc
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with h5py.File(f"{folder}/a.h5", "w") as file:
    ...         file["u"] = [[1.0, 2.0]]
    ...         file["u"].attrs["units"] = "m s-1"
    ...         file["u"].dims[1].label = "x"
    ...     names_in_file(ooc.open(f"{folder}/a.h5"))
    Named(axes=('x',), unit='m s-1')
    """
    names = view.names[len(view.axes) :]
    try:
        attributes = view.storage.annotations().attributes
    except SourceError:  # a unit only labels a picture
        attributes = {}
    return Named(names or None, _text(attributes.get("units")))


def _text(value: Any) -> str | None:
    if isinstance(value, bytes):
        value = value.decode("utf-8", "replace")
    return str(value) if isinstance(value, str) and value else None
