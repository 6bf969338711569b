"""Define `View`: the rows of one array, and what can be asked of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self, overload

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from oocdata import registry
from oocdata.datasets.array_rows import ArrayRows
from oocdata.datasets.dataset import Dataset, fields_of
from oocdata.datasets.parts import Parts
from oocdata.datasets.spec import as_dtype
from oocdata.engines.blocked import blocked
from oocdata.engines.byte_rows import largest_rows
from oocdata.engines.columns import is_sparse, select_columns
from oocdata.engines.dtypes import check_dtype
from oocdata.engines.fields import field_of
from oocdata.engines.mixed_shapes import PaddingMask
from oocdata.errors import ArgumentError, MismatchedPartsError
from oocdata.index import as_axes, as_numbers, as_positions, as_range, cut, expand_key, take
from oocdata.threads import cached_property

if TYPE_CHECKING:
    from oocdata.datasets.map import Map
    from oocdata.datasets.windows import Windows


class View(ArrayRows):
    """A selection of the rows of one array, as returned by `oocdata.open`.

    Indexing a View with a slice, an array or a mask gives another View and reads nothing. Indexing
    it with an int reads that row.

    Attributes
    ----------
    source : Source
        The array as stored.
    axes : tuple of int
        Sample axes of the stored array, outermost first. Rows are numbered in C order along them.
    cuts : tuple of range or int
        For each axis of the stored array the selected positions, or the one selected position of an
        axis that was dropped.
    rows : range or ndarray of int64
        Numbers of the selected rows along the sample axes, in the order of delivery.
    order : tuple of int
        For each axis of an element, the axis of the stored array.
    dtype : numpy.dtype
        Dtype of delivered rows, in native byte order.

    Examples
    --------
    >>> import oocdata as ooc
    >>> view = ooc.open(np.arange(60).reshape(10, 2, 3))
    >>> view
    <View: 10 rows of (2, 3) int64>
    >>> view[7]
    array([[42, 43, 44],
           [45, 46, 47]])
    >>> view[::2, 0, ::-1].take([1])
    array([[14, 13, 12]])
    >>> ooc.open(np.zeros((4, 5, 8, 8)), axis=(0, 1)).sample_shape
    (4, 5)
    """

    def __repr__(self) -> str:
        shape = f"{len(self)} rows"
        if len(self.sample_shape) > 1:
            shape = " × ".join(map(str, self.sample_shape)) + " rows"
        return f"<View: {shape} of {self.spec}>"

    def __str__(self) -> str:
        key = f", {self.storage.key}" if self.storage.key else ""
        return f"{self!r} from {self.storage.path or 'memory'}{key}"

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of all rows, ``(rows, *element)``."""
        return (len(self), *self.element)

    @property
    def ndim(self) -> int:
        """Number of axes of `shape`."""
        return 1 + len(self.element)

    @property
    def nbytes(self) -> int:
        """Size of all rows in memory, in bytes; an estimate for rows of ``bytes`` objects."""
        nbytes = len(self) * self.spec.nbytes
        if self.storage.row_sizes:
            sizes = np.array(self.storage.row_sizes)
            share = len(self) / max(1, self.source.shape[0])
            nbytes += int(share * largest_rows(sizes, int(sizes.sum())))
        return nbytes

    @property
    def names(self) -> tuple[str | None, ...]:
        """Names of the sample axes, then of the element's axes (None for one without a name).

        Empty if the file names no axes.
        """
        dimensions = self.storage.dimensions
        if not dimensions:
            return ()
        return tuple(dimensions[axis] or None for axis in (*self.axes, *self.order))

    @property
    def unit(self) -> str:
        """Dtype of dates that are delivered as int64, e.g. ``"datetime64[ns]"``; else empty.

        Examples
        --------
        >>> import oocdata as ooc
        >>> days = ooc.open(np.array(["2020-01-01", "2020-01-05"], "M8[D]"))
        >>> days[1], days.unit
        (np.int64(18266), 'datetime64[D]')
        >>> np.asarray(days, days.unit)
        array(['2020-01-01', '2020-01-05'], dtype='datetime64[D]')
        """
        return self.storage.unit

    @property
    def categories(self) -> tuple[Any, ...] | dict[int, Any]:
        """Names of integer codes: of a categorical column (AnnData) or an enum (HDF5).

        ``categories[code]`` is the name of a code. A tuple if the codes are 0, 1, 2, …; a dict if
        an enum has other numbers. Empty for other arrays.

        Raises
        ------
        oocdata.errors.MismatchedPartsError
            If the names differ between the parts of the array, so that one code has several
            meanings.

        Examples
        --------
        >>> import h5py, oocdata as ooc
        >>> file = h5py.File("a.h5", "w", driver="core", backing_store=False)
        >>> sky = h5py.enum_dtype({"clear": 0, "cloudy": 1}, "u1")
        >>> view = ooc.open(file.create_dataset("sky", data=[1, 0, 1], dtype=sky))
        >>> view[2], view.categories
        (np.uint8(1), ('clear', 'cloudy'))
        """
        storage = self.storage
        categories = storage.annotations().attributes.get("categories", ())
        if categories is None:
            raise MismatchedPartsError(
                "categories must be the same in all parts, because their codes are delivered as "
                "stored; they differ. Open each part alone, and map its codes to common ones.",
                path=storage.path,
                key=storage.key,
            )
        if isinstance(categories, dict):
            return {int(code): name for code, name in categories.items()}
        # `convert` writes categories as an attribute, which is read as a list or an array.
        return tuple(categories) if isinstance(categories, tuple | list | np.ndarray) else ()

    def mask(self) -> View:
        """Return the mask of stored values, a bool View of the same shape.

        True for values from the file; False for padding (``pad=`` of `oocdata.open`).

        Raises
        ------
        oocdata.errors.ArgumentError
            If the rows are sparse or ragged.

        Examples
        --------
        >>> import oocdata as ooc
        >>> view = ooc.open([np.ones((1, 3)), np.ones((2, 2))], pad=0)
        >>> np.asarray(view.mask()).tolist()
        [[True, True, True], [True, True, False], [True, True, False]]
        """
        if self.is_multi_array:
            raise ArgumentError(f"`mask` must be called on dense rows; got {self!r}.")
        return replace(self, source=PaddingMask(self.source), dtype=np.dtype(np.bool_))

    @cached_property
    def parts(self) -> Parts:
        """Files or datasets that the array consists of, with the part of each row.

        Raises
        ------
        oocdata.errors.ArgumentError
            If the parts are joined along another axis than the outermost sample axis.

        Examples
        --------
        >>> import tempfile, oocdata as ooc
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     np.savez(f"{folder}/a.npz", run_1=np.zeros((2, 3)), run_2=np.ones((1, 3)))
        ...     view = ooc.open(f"{folder}/a.npz", "run_*")
        >>> view.parts.names, view.parts.numbers
        (('run_1', 'run_2'), array([0, 0, 1]))
        """
        storage, axis = self.storage, self.axes[0]
        where, starts = storage.part_names or ((storage.path, storage.key),), storage.parts
        if storage.row_files and axis == 0:
            where = tuple((path, None) for path in storage.row_files)
            starts = tuple(range(len(where)))
        elif len(where) > 1 and storage.parts_axis != axis:
            raise ArgumentError(
                f"parts must be joined along the outermost sample axis, {axis}; they are joined "
                f"along axis {storage.parts_axis}."
            )
        places = self.places(as_numbers(self.rows))[0]
        return Parts(where, np.searchsorted(starts, places, side="right") - 1)

    # Reading --------------------------------------------------------------------------------------

    def take(self, positions: ArrayLike) -> NDArray[Any]:
        """Read the rows at positions, shape ``(n, *element)``; see `Dataset.take`."""
        rows: NDArray[Any] = super().take(positions)
        return rows

    @overload
    def __getitem__(
        self, key: slice | range | list[Any] | NDArray[Any] | str | tuple[slice, *tuple[Any, ...]]
    ) -> Self: ...

    @overload
    def __getitem__(self, key: Any) -> Any: ...

    def __getitem__(self, key: Any) -> Any:
        """Read one row (an int first), or select rows and parts of them without reading.

        A name selects that field of a structured dtype.
        """
        rows = self.rows
        # A row of 16 KiB of a cached .npy takes 10 µs of CPU time; through `take` 19 µs.
        if type(key) is int and -len(rows) <= key < len(rows):
            out = np.empty((1, *self.element), self.dtype)
            if out.size:
                origins = self._corner.T.copy()
                for axis, place in zip(self.axes, self.places(rows[key]), strict=True):
                    origins[0, axis] = place
                stored = self.placement.stored(out, self.extent.lengths)
                self.source.read(origins, self.extent, stored)
            return out[0]
        if isinstance(key, str) and self.dtype.names:
            return self._field(key)
        row, cuts = expand_key(key, self.ndim)
        if isinstance(row, list | np.ndarray) + sum(map(_is_list, cuts)) > 1:
            raise ArgumentError(
                "at most one axis may be indexed by an array at a time, because NumPy would pair "
                "two; got more. Choose one after the other: v[rows][:, columns]."
            )
        return super(View, self._cut(cuts)).__getitem__(row)

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> NDArray[Any]:
        """Read all rows: ``np.asarray(view)``, or ``np.asarray(view, view.unit)`` for dates."""
        if dtype is not None and self.unit and np.dtype(dtype).kind == np.dtype(self.unit).kind:
            return super().__array__(copy=copy).view(self.unit).astype(dtype)
        return super(View, self if dtype is None else self.astype(dtype)).__array__(copy=copy)

    # Other Views of the same rows -----------------------------------------------------------------

    def named(self, names: Iterable[str | bytes] | str) -> Self:
        """Select the rows of the named parts, in the order of this view; nothing is read.

        Parameters
        ----------
        names : iterable of str or bytes
            Names of parts, as for `Parts.find`; those in a file are read by
            ``np.asarray(ooc.open(path, "mask/train"))``.

        Raises
        ------
        oocdata.errors.ArgumentError
            If a name matches no part, or several.

        Examples
        --------
        >>> import tempfile, oocdata as ooc
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     np.savez(f"{folder}/a.npz", run_1=np.zeros((2, 3)), run_2=np.ones((1, 3)))
        ...     len(ooc.open(f"{folder}/a.npz", "run_*").named(["run_1"]))
        2
        """
        selected = np.zeros(len(self.parts), np.bool_)
        selected[self.parts.find(names)] = True
        return self._select(as_range(np.flatnonzero(selected[self.parts.numbers])))

    def _cut(self, cuts: Sequence[Any]) -> View:
        source, new_cuts = self.source, list(self.cuts)
        for axis, part in zip(self.order, cuts, strict=True):
            places = self.places_along(axis)
            if not _is_list(part):
                new_cuts[axis] = cut(places, part)
                continue
            chosen = take(places, as_positions(part, len(places)))
            if is_sparse(source):
                source = select_columns(source, chosen)
            elif len(chosen):
                from oocdata.engines.axis_views import take_places  # not for `import oocdata`

                source = take_places(source, axis, chosen)
            else:
                raise ArgumentError("an array that indexes an element axis must not be empty.")
            new_cuts[axis] = range(len(chosen))
        order = tuple(axis for axis in self.order if isinstance(new_cuts[axis], range))
        return replace(self, source=source, cuts=tuple(new_cuts), order=order)

    def _field(self, name: str) -> View:
        """Return one field of structured rows; the field's own axes come last in an element."""
        source = field_of(self.source, name)
        field_axes = range(len(self.source.shape), len(source.shape))
        return replace(
            self,
            source=blocked(source, self.axes),
            cuts=(*self.cuts, *(range(source.shape[axis]) for axis in field_axes)),
            order=(*self.order, *field_axes),
            dtype=source.dtype,
        )

    def transpose(self, *axes: int) -> View:
        """Permute the axes of the elements; nothing is read.

        Parameters
        ----------
        *axes : int
            All axes of an element, each once, in their new order; the row axis is not counted.
            Without arguments the order is reversed.

        Returns
        -------
        View

        Raises
        ------
        oocdata.errors.ArgumentError
            If `axes` is not a permutation of the element's axes.

        Examples
        --------
        >>> import oocdata as ooc
        >>> ooc.open(np.zeros((10, 3, 50, 60))).transpose(1, 2, 0).element
        (50, 60, 3)
        """
        ndim = len(self.element)
        permutation = as_axes(axes or range(ndim)[::-1], ndim)
        if permutation is None or len(permutation) < ndim:
            raise ArgumentError(
                f"`axes` must be the {ndim} axes of an element, each once, by their numbers, one "
                f"by one: transpose(1, 0); got {axes}."
            )
        return replace(self, order=tuple(self.order[axis] for axis in permutation))

    def astype(self, dtype: DTypeLike) -> View:
        """Convert rows to another dtype as they are written into a batch, by NumPy's casting.

        Parameters
        ----------
        dtype : dtype_like
            Numbers or bool. Delivered in native byte order.

        Returns
        -------
        View

        Raises
        ------
        oocdata.errors.UnsupportedDtypeError
            If batches can't hold the dtype.
        oocdata.errors.ArgumentError
            For text; for complex to real, which would lose the imaginary part; and for a second
            conversion after one that was not safe.

        Examples
        --------
        >>> import oocdata as ooc
        >>> ooc.open(np.arange(3)).astype("f4")[2]
        np.float32(2.0)
        """
        target = as_dtype(dtype).newbyteorder("=")
        if self.dtype.kind in "SUO":
            raise ArgumentError(
                f"`dtype` must be left as it is for text and bytes; got {target} for {self!r}. "
                "Parse it in `.map`."
            )
        check_dtype(self.dtype)
        if self.dtype.kind == "c" and target.kind != "c":
            raise ArgumentError(
                f"`dtype` must be complex for complex rows; got {target}. Choose a part in `.map`."
            )
        if target == self.dtype:
            return self
        if not np.can_cast(self.source.dtype, self.dtype, "safe"):
            raise ArgumentError(
                f"`dtype` must be given once where a conversion loses something; the rows are "
                f"{self.source.dtype}, converted to {self.dtype} already, and now to {target}. "
                "Convert again in `.map`."
            )
        return replace(self, dtype=target)

    # Other datasets -------------------------------------------------------------------------------

    def _as_sparse(self) -> Dataset | None:
        return registry.call("sparse", **fields_of(self)) if is_sparse(self.source) else None

    def parse(
        self,
        features: Mapping[str, Any],
        *,
        pad: int | Mapping[str, int] | None = None,
        cut: bool = False,
        mask: bool = False,
    ) -> Map:
        """Parse records that are ``tf.train.Example`` messages (TFRecord files).

        Whole batches are parsed by ``tf.io.parse_example`` as part of reading ahead. Features of
        unequal length (all but ``FixedLenFeature``) are a `RaggedBatch`, and in `to_tf` a
        ``tf.RaggedTensor``. With `pad` they are arrays of one length, which can be mapped, cached,
        and read by worker processes and Keras.

        Parameters
        ----------
        features : dict of str to feature
            ``tf.io.FixedLenFeature``, ``VarLenFeature``, ``FixedLenSequenceFeature``, or
            ``RaggedFeature``, whose ``partitions`` must be of uniform length.
        pad : int or dict of int by name, optional
            Length to pad features of unequal length to, with the ``default_value`` of a
            ``FixedLenSequenceFeature``, else with 0 or an empty text.
        cut : bool
            Truncate longer rows. By default they are an error.
        mask : bool
            Add the mask of the values of each padded feature, bool, as a feature ``NAME_mask``.

        Returns
        -------
        Map
            Elements are dicts of arrays with the features' shapes and dtypes; text is ``bytes``.

        Raises
        ------
        oocdata.errors.ArgumentError
            If rows are not bytes, or a feature is of another kind.
        oocdata.errors.MissingDependencyError
            If TensorFlow is not installed.
        oocdata.errors.MapError
            If a record does not have the features, with file and row. (In `to_tf`, where TensorFlow
            parses, its own error without them.)

        Examples
        --------
        >>> import tempfile, oocdata as ooc, tensorflow as tf
        >>> def example(x):
        ...     value = tf.train.Feature(int64_list=tf.train.Int64List(value=[x]))
        ...     return tf.train.Example(features=tf.train.Features(feature={"x": value}))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     with tf.io.TFRecordWriter(f"{folder}/a.tfrecord") as writer:
        ...         for x in (7, 8, 9):
        ...             writer.write(example(x).SerializeToString())
        ...     records = ooc.open(f"{folder}/a.tfrecord")
        ...     records.parse({"x": tf.io.FixedLenFeature([], tf.int64)}).take([2, 0])
        {'x': array([9, 7])}
        """
        return registry.call("parse", self, features, pad, cut, mask)

    def windows(
        self,
        inputs: int | Sequence[int],
        targets: int | Sequence[int] = 0,
        *,
        shift: int = 1,
        stride: int = 1,
        horizon: int = 1,
        episodes: ArrayLike | str | None = None,
        pad: bool = False,
        mask: bool = True,
        time_axis: bool = True,
    ) -> Windows:
        """Return windows of consecutive rows as elements: ``x``, or ``(x, y)`` with targets.

        Windows extend along the last sample axis, and never cross an episode or a step of an outer
        sample axis. There is one window at each position where all its rows are in the episode, or
        with `pad` at each row. For windows of several arrays see `oocdata.windows`.

        Parameters
        ----------
        inputs : int or sequence of int
            Number of rows in ``x``, which has shape ``(inputs, *element)``; or ascending offsets of
            these rows relative to a reference row, e.g. ``(-8, -4, -1, 0)``.
        targets : int or sequence of int
            Number of rows in ``y``, which has shape ``(targets, *element)``; or offsets relative to
            the same reference row. 0: elements are ``x`` alone.
        shift : int
            Distance in rows between the starts of consecutive windows.
        stride : int
            Distance in rows between consecutive rows of a window.
        horizon : int
            Distance in rows from the last input to the first target. 0: the same row; negative: an
            earlier row.
        episodes : array_like of int, shape (n,), or str, optional
            Lengths of the episodes, which sum to the number of rows (see `oocdata.episodes`).
            "parts": each part is an episode, i.e. each dataset of a pattern or list of keys, or
            each file of a list or glob. "files": each file is an episode. "folders": the files of a
            folder are an episode. "none": only outer sample axes separate episodes. By default the
            datasets of several keys are episodes; so are the folders of pictures, and of files
            opened with ``axis=None``; and any other list of files or arrays is one series, which a
            warning says.
        pad : bool
            Make a window for each row (each `shift`-th row), also near the ends of an episode.
            Inputs and targets are then relative to that row: a number of inputs starts at the row,
            and offsets ``(-3, -2, -1, 0)`` end there. Rows outside the episode repeat its first or
            last row.
        mask : bool
            With `pad`, add a bool mask that is True for rows inside the episode: ``(x, mask)`` with
            a mask of shape ``(inputs,)``, or ``(x, y, mask)`` with the mask of ``y``, which Keras
            uses as sample weights.
        time_axis : bool
            False: an array of one row has shape ``element``, without a time axis, such as ``y`` of
            one target. (Losses of Keras broadcast ``(1, *element)`` against ``element``.)

        Returns
        -------
        Windows

        Raises
        ------
        oocdata.errors.EmptyError
            If no window fits.
        oocdata.errors.ArgumentError
            If an argument is invalid, or the episodes do not match the rows.
        oocdata.errors.PartBorderWarning
            If windows cross from one file or array into the next, or a gap between rows that were
            selected one by one, and `episodes` is not given.

        Examples
        --------
        >>> import oocdata as ooc
        >>> x, y = ooc.open(np.arange(10)).windows(3, 1, horizon=2)[0]
        >>> x, y
        (array([0, 1, 2]), array([4]))
        >>> runs = ooc.open(np.zeros((4, 10, 8, 8)), axis=(0, 1))   # 4 trajectories of 10 steps
        >>> len(runs.windows(3, 1))
        28
        >>> x, mask = ooc.open(np.arange(10)).windows((-4, -1, 0), pad=True)[2]
        >>> x, mask
        (array([0, 1, 2]), array([False,  True,  True]))
        """
        return registry.call(
            "windows", self, inputs, targets, stride, horizon,
            shift=shift, episodes=episodes, pad=pad, mask=mask, time_axis=time_axis,
        )  # fmt: skip

    def next_frame(self, horizon: int = 1, episodes: ArrayLike | str | None = None) -> Windows:
        """Return pairs ``(row i, row i + horizon)`` without a time axis, for next-frame prediction.

        Parameters
        ----------
        horizon : int
            Distance in rows from the input to the target.
        episodes : array_like of int, or str, optional
            As for `windows`; no pair crosses an episode.

        Returns
        -------
        Windows
            Elements are ``(x, y)``, both of the shape of a row.

        Examples
        --------
        >>> import oocdata as ooc
        >>> ooc.open(np.arange(10)).next_frame()[3]
        (np.int64(3), np.int64(4))
        """
        return registry.call("windows", self, 1, 1, 1, horizon, episodes=episodes, time_axis=False)


def _is_list(part: Any) -> bool:
    return isinstance(part, list) or (isinstance(part, np.ndarray) and part.ndim == 1)
