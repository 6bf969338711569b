"""Define `open`, which opens a file or array as a View, and `ragged`, which cuts one into rows."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from oocdata.datasets.dataset import Dataset, fields_of
from oocdata.datasets.view import View
from oocdata.engines.blocked import blocked
from oocdata.engines.mixed_shapes import padded_axes
from oocdata.engines.ragged_rows import RaggedRows, is_ragged
from oocdata.errors import ArgumentError
from oocdata.formats.opening import Axis, Missing, open_source
from oocdata.index import as_array, as_lengths

if TYPE_CHECKING:
    from oocdata.datasets.ragged import Ragged
    from oocdata.formats.pictures import Pictures


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
    """Open an array of any size; reads metadata, but no data.

    Parameters
    ----------
    target : path, URL, object, or list of them
        A file: ``.npy``, ``.npz``, HDF5, netCDF4, Zarr v2 or v3, raw binary; text (``.txt``,
        ``.csv``, ``.jsonl``, …), where each line is a row; TFRecord, also compressed by gzip; or
        images (JPEG, PNG, TIFF, WebP, BMP, GIF), where each file is a row (height, width,
        channels). An object: ndarray, memmap, ``h5py.Dataset``, ``zarr.Array``,
        ``xarray.DataArray`` (with the values it shows, as long as its file is not replaced), any
        object with shape, dtype and slicing, or your own `oocdata.Source` or `oocdata.RowSource`.
        A list or glob is concatenated along the first sample axis; its parts must have the same
        packing. Files of a glob are in natural order (``part2`` before ``part10``).
    key : str or list of str, optional
        Dataset in an HDF5 file, Zarr group, ``.npz``, ``xarray.Dataset`` or ``DataTree``. Optional
        if there is only one, not counting text, single numbers, and coordinates of netCDF and
        xarray. A pattern (``"data/demo_*/actions"``, wildcards as in a glob) or list concatenates
        all these datasets, those of a pattern in natural order; each is an episode. A name that
        exists literally is not a pattern.
    axis : int, str, sequence of them, or None
        Sample axes, outermost first, by number or by dimension name (netCDF, xarray, Zarr, HDF5
        dimension scales and labels). Rows are numbered along them in C order, and an element has
        the other axes in the order of storage. ``(0, 1)`` of (trajectory, time, y, x) makes each
        frame a row; windows extend along time, within one trajectory. Files of a list are
        concatenated along the first. None: no axis numbers rows, and each file (or dataset of a
        pattern or list of keys) is one row, also a single number or text. Windows
        extend from row to row.
    dtype, shape, offset
        For raw binary: stored dtype, shape in C order (one length may be -1), and number of bytes
        to skip. `dtype` also names the ml_dtypes type of a ``.npy`` of raw bytes, e.g. "bfloat16".
    missing : {"error", "fill"}, optional
        Whether to raise or deliver the fill value for absent chunks, which were never written or
        were lost. By default HDF5 raises; Zarr, whose writers omit chunks of fill values, delivers
        the fill value, and warns once (`oocdata.errors.MissingChunkWarning`).
    external : bool
        Accept HDF5 data that is stored in other HDF5 files.
    verify : bool or path, optional
        Compare each row that is read with its checksum, from the manifest at this path, or (True)
        from the manifest next to the target. ``oocdata check PATH --write-manifest`` writes one.
    field : str or sequence of str, optional
        Field of a structured dtype, like ``view["name"]``; several names select a nested field.
    decode : bool
        Decode packed values (netCDF, Zarr) by the attributes ``scale_factor``, ``add_offset``,
        ``_Unsigned``, ``_FillValue`` and ``missing_value``, with NaN for missing values and
        xarray's rules for float32 or float64. CF times (``units`` such as "hours since
        1900-01-01") become int64 dates with `View.unit` ``"datetime64[ns]"``. By default values are
        delivered as stored.
    pad : number, optional
        Padding value for parts (files, datasets of a pattern) whose rows differ in shape: each row
        is padded to the largest length along each axis. `View.mask` gives the mask of stored
        values. Without `pad`, rows that differ only in their first axis become a `Ragged`; other
        differences are an error that lists the shapes.
    format : "text", optional
        Treat the file as text, whatever its name. Rows of text and TFRecord are ``bytes`` in object
        arrays. Their offsets are found once, and stored in a small hidden file next to the data.
    pictures : Pictures, optional
        Resize images, or convert them to grey or colour. By default all images must have the shape
        of the first, and are delivered as stored. Also decodes arrays of encoded images (HDF5 of
        variable length, or uint8 padded to one length).
    cache : path, optional
        For URLs: folder that caches fetched data for later epochs, runs and other processes, up to
        ``OOCDATA_CACHE_BYTES`` (environment variable). By default the environment variable
        ``OOCDATA_CACHE``, or none. ``oocdata cache`` shows and clears it.
    store : object, optional
        An obstore store or fsspec file system with its credentials and settings; `target` is then
        a name in it, or a list or pattern of names. The result can't be sent to worker processes or
        a cluster.

    Returns
    -------
    View
        Shape ``(rows, *element)``, in native byte order. A `Ragged` for rows of variable length
        (HDF5, or parts whose rows differ in their first axis).

    Raises
    ------
    oocdata.errors.SourceError
        If the target can't be opened; the subclass tells why (see `oocdata.errors`). With `verify`,
        reading a row that has changed raises `oocdata.errors.ChecksumError`.
    oocdata.errors.ArgumentError
        If an argument is invalid, or arguments contradict each other.

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
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     for number in range(3):
    ...         np.save(f"{folder}/volume_{number}.npy", np.zeros((20, 64, 64)))
    ...     ooc.open(f"{folder}/volume_*.npy", axis=None)
    <View: 3 rows of (20, 64, 64) float64>
    """
    parts = target if isinstance(target, list | tuple) else [target]
    if any(isinstance(part, Dataset) for part in parts):
        raise ArgumentError(
            "`target` must hold paths or arrays, no dataset that is open already. Put datasets one "
            "after the other by ooc.concat, or side by side by ooc.zip."
        )
    source = open_source(
        target, key=key, axis=axis, dtype=dtype, shape=shape, offset=offset, missing=missing,
        external=external, verify=verify, field=field, decode=decode, pad=pad, format=format,
        pictures=pictures, cache=cache, store=store,
    )  # fmt: skip
    several = not isinstance(axis, str) and isinstance(axis, Sequence) and len(axis) > 1
    if several and (is_ragged(source) or padded_axes(source) & set(View.of(source, axis).axes)):
        raise ArgumentError(
            f"`axis` must name sample axes that are equally long in all parts, or one; got {axis}. "
            "Open the parts one by one, and put them one after the other by ooc.concat."
        )
    if is_ragged(source):
        from oocdata.datasets.ragged import Ragged  # not for `import oocdata`

        return Ragged.of(source, axis)
    view = View.of(source, axis)
    if view.storage.categorical and len(view.storage.parts) > 1:
        _ = view.categories  # raises if one code has several meanings
    by_blocks = blocked(source, view.axes)
    return view if by_blocks is source else View.of(by_blocks, axis)


def ragged(
    values: View | str | os.PathLike[str] | Any,
    offsets: View | ArrayLike | str | os.PathLike[str] | None = None,
    *,
    lengths: ArrayLike | Sequence[int] | None = None,
) -> Ragged:
    """Open ragged rows that are stored one after the other in an array.

    Arrow lists, CSR matrices, token streams, event lists, and the parts of several files are stored
    in this way.

    Parameters
    ----------
    values : View, or any target of `oocdata.open`
        Values of all rows, shape (n, …), without a selection.
    offsets : View, array_like or path, optional
        Start of each row in `values`, then the end of the last: ascending integers, shape (rows +
        1,).
    lengths : array_like of int, shape (rows,), optional
        Length of each row, instead of `offsets`. ``values.parts.lengths`` makes each file a row.

    Returns
    -------
    Ragged

    Raises
    ------
    oocdata.errors.ArgumentError
        If both or neither of `offsets` and `lengths` are given, they are not integers, the lengths
        do not sum to n, or offsets in memory do not ascend within n. (Offsets in a file are checked
        when rows are read.)

    Examples
    --------
    >>> import numpy as np, oocdata as ooc
    >>> rows = ooc.ragged(np.arange(10, 16), [0, 3, 3, 6])
    >>> rows, rows[2], rows.lengths.take([0, 1, 2])
    (<Ragged: 3 rows of (any) int64>, array([13, 14, 15]), array([3, 0, 3]))
    """
    from oocdata.datasets.ragged import Ragged  # not for `import oocdata`

    view = _open_whole("values", values)
    count = len(view)
    if isinstance(view, Ragged):
        raise ArgumentError(f"`values` must be rows of one shape; got {view!r}.")
    if (offsets is None) == (lengths is None):
        raise ArgumentError("`offsets` or `lengths` must be given, and not both.")
    if lengths is not None:
        offsets = np.append(0, as_lengths("lengths", lengths, count, of="values")).cumsum()
    borders = _open_whole("offsets", offsets)
    if borders.dtype.kind not in "iu" or borders.element or len(borders) < 1:
        raise ArgumentError(f"`offsets` must be whole numbers, one axis of them; got {borders!r}.")
    if isinstance(offsets, list | tuple | np.ndarray) and not borders.storage.files:
        starts = np.asarray(borders, np.int64)  # those in files are checked by row, when read
        if (np.diff(starts, prepend=0, append=count) < 0).any():
            raise ArgumentError(
                f"`offsets` must ascend from 0 to at most the {count} values; got {starts}. If "
                "these are the lengths of rows, pass lengths=…."
            )
    return Ragged.of(RaggedRows(view.source, borders.source))


def _open_whole(name: str, target: Any) -> View:
    """Open an argument; raise ArgumentError for a selection, because offsets refer to all rows."""
    if isinstance(target, list | tuple) and not any(isinstance(part, str) for part in target):
        target = as_array(name, target)
    view = target if isinstance(target, View) else open(target)
    if isinstance(view.rows, np.ndarray) or fields_of(view) != fields_of(View.of(view.source)):
        raise ArgumentError(
            f"`{name}` must be a whole array, its first axis as the rows, of which nothing was "
            f"selected; got {view!r}. Select and transpose what `pad` gives."
        )
    return view
