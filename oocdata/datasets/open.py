"""`open`: a file or an array as a View."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

from numpy.typing import DTypeLike

from oocdata.datasets.dataset import Dataset
from oocdata.datasets.view import View
from oocdata.engines.blocked import blocked
from oocdata.engines.ragged_rows import is_ragged
from oocdata.engines.unlike import filled_axes
from oocdata.errors import ArgumentError
from oocdata.formats.opening import Axis, Missing, open_source

if TYPE_CHECKING:
    from oocdata.formats.pictures import Pictures

__all__ = ["open"]


def open(  # noqa: A001  # the field's word, as in zarr.open; builtins.open is not used here
    target: str | os.PathLike[str] | Sequence[Any] | Any,
    key: str | Sequence[str] | None = None,
    *,
    axis: Axis = 0,
    dtype: DTypeLike | None = None,
    shape: Sequence[int] | None = None,
    offset: int = 0,
    missing: Missing | None = None,
    external: bool = False,
    verify: bool | str | os.PathLike[str] | None = None,
    field: str | Sequence[str] = (),
    decode: bool = False,
    pad: float | None = None,
    format: Literal["text"] | None = None,  # noqa: A002  # the field's word; the builtin is not used
    pictures: Pictures | None = None,
    cache: str | os.PathLike[str] | None = None,
    store: Any = None,
) -> View:
    """Open an array of any size as it is: reads the header, no data.

    Parameters
    ----------
    target : path, URL, object, or list of them
        ``.npy``, ``.npz``, HDF5, netCDF4, Zarr v2 or v3, raw binary; text (``.txt``, ``.csv``,
        ``.jsonl``, …), of which a row is a line, and TFRecord, also in gzip; pictures
        (JPEG, PNG, TIFF, WebP, BMP, GIF), of which each file is a row, (height, width, channels);
        an ndarray, memmap, ``h5py.Dataset``, ``zarr.Array``, ``xarray.DataArray`` (with the
        values that it shows, as long as its file is not replaced by another), or anything with
        shape, dtype and slicing; a source of your own (`oocdata.Source`, or rows alone:
        `oocdata.RowSource`). A list or a glob is one array along the first sample axis, of parts
        that are packed alike; a glob's files come in natural order (``part2`` before ``part10``).
    key : str or list of str, optional
        The dataset inside an HDF5 file, Zarr group, ``.npz``, ``xarray.Dataset`` or ``DataTree``;
        not needed when there is one, coordinates of netCDF and xarray not counted. A pattern
        (``"data/demo_*/actions"``, wildcards as in a glob) or a list is one array over all the
        datasets of a file, a pattern's in natural order; each is an episode. A name that exists as
        it is written is no pattern.
    axis : int, str, or sequence of them
        The sample axes, one or several, outermost first: by number or by the name of a dimension
        (netCDF, xarray, Zarr, HDF5 dimension scales and labels). Rows are numbered in C order of
        their places; an element keeps the other axes in the order of storage. ``(0, 1)`` of
        (trajectory, time, y, x): each row a frame, and windows run along time, never across two
        trajectories. Files of a list are put end to end along the first.
    dtype, shape, offset
        For raw binary: the stored dtype, the shape in C order (one entry may be -1), bytes to skip.
        `dtype` also says which small float of ml_dtypes a ``.npy`` of raw bytes holds: "bfloat16".
    missing : {"error", "fill"}, optional
        What to do about chunks that were never written or have been lost, which look the same:
        raise, or deliver the fill value. By default HDF5 raises; Zarr, whose writers leave out
        chunks that hold the fill value alone, delivers it and tells once
        (`oocdata.errors.MissingChunkWarning`).
    external : bool
        Accept HDF5 data that lies in other HDF5 files.
    verify : bool or path, optional
        Compare every row with its checksum whenever it is read: in the manifest of this path, or
        (True) in the one beside the target. ``oocdata check PATH --write-manifest`` writes it.
    field : str or sequence of str, optional
        Of structured rows the field to open, as ``view["name"]`` of what is opened without it;
        several names lead to a field of a field.
    decode : bool
        Decode packed numbers (netCDF, Zarr) as xarray does, by the attributes ``scale_factor``,
        ``add_offset``, ``_Unsigned``, ``_FillValue`` and ``missing_value``: NaN for missing ones,
        float32 or float64 by xarray's rules. Times (CF conventions: ``units`` of "hours since
        1900-01-01") become dates: int64, whose `View.unit` is ``"datetime64[ns]"``. By default all
        are delivered as stored.
    pad : number, optional
        Where parts (files, datasets of a pattern) have rows of unlike shapes: fill each row up with
        this number to the longest of each axis. `View.mask` says where rows hold what is stored.
        Without it, rows that differ in their first axis alone become a `Ragged`, and others are an
        error that lists the shapes.
    format : "text", optional
        The file is text, whatever its name. Rows of text and of TFRecord are ``bytes``, in arrays
        of objects; where they begin is found once, and kept in a small hidden file beside them.
    pictures : Pictures, optional
        Resize pictures, or convert them to grey or to colours. Without it, all must have the shape
        of the first, and are delivered as they are stored. Of an array whose rows are the bytes of
        pictures (HDF5 of varying length, or uint8 padded to one length) it makes the pictures.
    cache : path, optional
        Of a URL: the folder in which what is fetched is kept, within a limit, for later epochs,
        other processes and later runs; by default that of the environment variable
        ``OOCDATA_CACHE``, or none. ``oocdata cache`` shows and clears it.
    store : object, optional
        A store of obstore or a file system of fsspec, with whatever credentials and settings it was
        opened: `target` is then a name in it, or a list or a pattern of them. What is opened so is
        of this process alone: it can't be sent to workers or a cluster.

    Returns
    -------
    View
        ``(rows, *element)`` in native byte order; `Ragged` for rows of varying length (HDF5, or
        parts whose rows differ in their first axis).

    Raises
    ------
    oocdata.errors.SourceError
        If the target can't be opened; the subclass says why (see `oocdata.errors`). Later, from
        whatever reads, `oocdata.errors.ChecksumError` if `verify` finds rows that have changed.
    oocdata.errors.ArgumentError
        If the arguments don't fit together.

    Examples
    --------
    >>> import tempfile, numpy as np, oocdata as ooc
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.save(f"{folder}/ds.npy", np.arange(12.0).reshape(6, 2))
    ...     frames = ooc.open(f"{folder}/ds.npy")
    ...     frames[4]
    array([8., 9.])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.savez(f"{folder}/a.npz", run_1=np.zeros((4, 2)), run_2=np.ones((3, 2)))
    ...     runs = ooc.open(f"{folder}/a.npz", "run_*")
    ...     len(runs), len(runs.windows(2))
    (7, 5)
    >>> clips = ooc.open([np.ones((2, 1, 3)), np.ones((1, 2, 2))], pad=0)
    >>> clips, clips[2].tolist()
    (<View: 3 rows of (2, 3) float64>, [[1.0, 1.0, 0.0], [1.0, 1.0, 0.0]])
    >>> ooc.open(np.zeros((90, 101, 8, 6)), axis=(0, 1))
    <View: 90 × 101 rows of (8, 6) float64>
    """
    options: dict[str, Any] = {
        "key": key, "dtype": dtype, "shape": shape, "offset": offset, "missing": missing,
        "external": external, "verify": verify, "field": field, "decode": decode, "pad": pad,
        "format": format, "pictures": pictures, "cache": cache,
        "store": store,
    }  # fmt: skip
    if isinstance(target, View):
        given = {"axis": None if axis in (0, (0,)) else axis, **options}
        for name, value in given.items():
            if value is not None and value is not False and value not in (0, ()):
                raise ArgumentError(
                    f"`{name}` must be left out for a View, which is open already; got {value!r}. "
                    "Open what it was opened from."
                )
        return target
    if isinstance(target, list | tuple) and any(isinstance(one, Dataset) for one in target):
        raise ArgumentError(
            "`target` must hold paths or arrays, no dataset that is open already. Put datasets one "
            "after the other by ooc.concat, or side by side by ooc.zip."
        )
    source = open_source(target, axis=axis, **options)
    several = not isinstance(axis, str) and isinstance(axis, Sequence) and len(axis) > 1
    if several and (is_ragged(source) or filled_axes(source) & set(View.of(source, axis).axes)):
        raise ArgumentError(
            f"`axis` must name sample axes that are equally long in all parts, or one; got {axis}. "
            "Open the parts one by one, and put them one after the other by ooc.concat."
        )
    if is_ragged(source):
        from oocdata.datasets.ragged import Ragged  # not for `import oocdata`

        return Ragged.of(source, axis)
    view = View.of(source, axis)
    best = blocked(source, view.axes)
    return view if best is source else View.of(best, axis)
