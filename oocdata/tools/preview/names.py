"""What a file says of an array besides its numbers: names of the axes, and the unit.

The unit is the attribute ``units`` of the CF conventions (section 3.1). Both only label a picture,
so what can't be read is left out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from oocdata.datasets.view import View
from oocdata.sources.adapt import layout_of

__all__ = ["Named", "names_in_file"]


@dataclass(frozen=True, slots=True)
class Named:
    """What a file calls an array's axes, as stored, and its unit.

    Attributes
    ----------
    axes : tuple of str or None
        Of a row's axes, empty for one without a name; None where it is open which they are.
    unit : str or None
    """

    axes: tuple[str, ...] | None = None
    unit: str | None = None


def _of_a_row(
    axes: tuple[str, ...], lengths: tuple[int, ...], shape: tuple[int, ...]
) -> tuple[str, ...] | None:
    """Return the names of a row's axes.

    Parameters
    ----------
    axes : tuple of str
        As stored.
    lengths : tuple of int
        As stored.
    shape : tuple of int
        ``(rows, *element)`` as delivered, where rows may have been cut.

    Examples
    --------
    >>> axes, lengths = ("t", "lat", "lon"), (9, 20, 30)
    >>> _of_a_row(axes, lengths, (9, 20, 30)), _of_a_row(axes, lengths, (20, 9, 15))
    (('lat', 'lon'), ('t', 'lon'))
    """
    # The row axis, which a cut leaves whole, may be any of them. Where lengths are equal, it is
    # open which.
    fitting = {
        axes[:axis] + axes[axis + 1 :]
        for axis in range(len(axes))
        if lengths[axis] == shape[0]
        and len(axes) == len(shape)
        and all(
            whole >= cut
            for whole, cut in zip(lengths[:axis] + lengths[axis + 1 :], shape[1:], strict=True)
        )
    }
    return fitting.pop() if len(fitting) == 1 else None


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
    source = getattr(view.source, "parts", (view.source,))[0]
    layout = layout_of(source)
    path = layout.path
    try:
        if path is not None and layout.format.startswith("HDF5"):
            return _hdf5(path, layout.key or "/", source.shape)
        if path is not None and layout.format.startswith("Zarr"):
            return _zarr(path, layout.key, source.shape)
    except (OSError, KeyError, ValueError, TypeError, AttributeError, RuntimeError):
        return Named()
    return Named()


def _hdf5(path: str, key: str, shape: tuple[int, ...]) -> Named:
    import h5py

    from oocdata.sources.hdf5.description import dimension_names

    with h5py.File(path, "r") as file:
        dataset = file[key]
        axes = _of_a_row(dimension_names(dataset), dataset.shape, shape)
        return Named(axes, _text(dataset.attrs.get("units")))


def _zarr(path: str, key: str | None, shape: tuple[int, ...]) -> Named:
    from oocdata.sources.zarr.attributes import attributes_of
    from oocdata.sources.zarr.hierarchy import find_array
    from oocdata.sources.zarr.store import store_of

    store = store_of(path)
    found, metadata = find_array(store, key, path)
    said = attributes_of(store, found, metadata)
    axes = _of_a_row(said.dimensions, metadata.shape, shape)
    return Named(axes, _text(said.attributes.get("units")))


def _text(value: Any) -> str | None:
    if isinstance(value, bytes):
        value = value.decode("utf-8", "replace")
    return str(value) if isinstance(value, str) and value else None
