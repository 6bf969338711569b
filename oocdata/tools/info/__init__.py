"""`oocdata info`: what a file holds, how it will be read, and what shuffling it costs.

Only metadata are read, and no heavy library is imported beyond what the file's format needs, so
that the answer comes at once.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field

from oocdata.datasets.open import open as open_view
from oocdata.datasets.view import View
from oocdata.errors import ArgumentError, SourceError
from oocdata.formats.opening import Axis, Missing, list_datasets
from oocdata.tools.info.shuffling import BATCH_SIZE, Shuffling, rows_together, shuffling_of

__all__ = ["Contents", "Description", "Opening", "Unopened", "contents", "describe"]

_MOST_DESCRIBED = 500
Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Opening:
    """The arguments of `oocdata.open` besides target and key."""

    axis: Axis = 0
    dtype: str | None = None
    shape: Shape | None = None
    offset: int = 0
    missing: Missing | None = None
    external: bool = False

    def view(self, target: str, key: str | None) -> View:
        """Open the target."""
        return open_view(target, key, **asdict(self))

    def code(self, target: str, key: str | None) -> str:
        """Return the call of `oocdata.open` in Python, with the arguments that matter.

        Examples
        --------
        >>> Opening(axis=1).code("ds.h5", "/u")
        "ooc.open('ds.h5', '/u', axis=1)"
        """
        usual = asdict(Opening())
        given = [
            f"{name}={value!r}" for name, value in asdict(self).items() if value != usual[name]
        ]
        named = [repr(target), *([repr(key)] if key else []), *given]
        return f"ooc.open({', '.join(named)})"


@dataclass(frozen=True, slots=True)
class Description:
    """One array in a file.

    Attributes
    ----------
    path, key, format, codec, stored_bytes, reading
        As in `oocdata.engines.source.Storage`; `storage` is its ``layout``.
    files : int
        More than one for a glob.
    shape, dtype
        As delivered: the number of rows, then an element's shape.
    sample_shape : tuple of int
        Lengths of the sample axes.
    row_bytes, memory_bytes : int
        Of one row and of all rows in memory.
    chunk_rows : int
        Rows that are stored and decoded together.
    shuffling : Shuffling or None
        None where there is nothing to shuffle.
    code : tuple of str
        Lines of Python that open it and train on it.
    dimensions : tuple of str
        Names of the axes as stored; empty where they have none.
    """

    path: str | None
    key: str | None
    files: int
    format: str
    shape: Shape
    sample_shape: Shape
    dtype: str
    row_bytes: int
    memory_bytes: int
    stored_bytes: int | None
    storage: str
    codec: str
    chunk_rows: int
    reading: str
    shuffling: Shuffling | None
    code: tuple[str, ...]
    dimensions: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Unopened:
    """An array that can't be opened, and why.

    Attributes
    ----------
    key : str or None
    error : str
        The name of the error's class.
    reason : str
        The error's message.
    """

    key: str | None
    error: str
    reason: str


@dataclass(frozen=True, slots=True)
class Contents:
    """All arrays of a file; those past the first 500 by name only.

    Attributes
    ----------
    path : str
    datasets : tuple of Description or Unopened
    others : tuple of str
    """

    path: str
    datasets: tuple[Description | Unopened, ...]
    others: tuple[str | None, ...] = field(default=())


def contents(path: str, opening: Opening | None = None) -> Contents:
    """Return what is in a file.

    Parameters
    ----------
    path : str
    opening : Opening, optional

    Returns
    -------
    Contents
        What can't be opened (text, structured rows, chunks that are missing, …) with the reason.

    Raises
    ------
    oocdata.errors.SourceError
        If the file itself can't be read.
    oocdata.errors.ArgumentError
        If `opening` doesn't suit the file.

    Examples
    --------
    >>> import tempfile, numpy as np
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.savez(f"{folder}/a.npz", u=np.zeros((10, 3)), names=np.array(["a", "b"]))
    ...     found = contents(f"{folder}/a.npz")
    >>> [(one.key, getattr(one, "shape", "no numbers")) for one in found.datasets]
    [('u', (10, 3)), ('names', 'no numbers')]
    """
    how = opening or Opening()
    keys = [key or None for key in list_datasets(path)]
    found: list[Description | Unopened] = []
    for key in keys[:_MOST_DESCRIBED]:
        try:
            found.append(describe(path, key, how))
        except (SourceError, ArgumentError) as error:
            if len(keys) == 1:
                raise
            found.append(Unopened(key, type(error).__name__, str(error)))
    return Contents(path, tuple(found), tuple(keys[_MOST_DESCRIBED:]))


def describe(target: str, key: str | None = None, opening: Opening | None = None) -> Description:
    """Return how an array is stored and what reading it is like. Reads metadata only.

    Parameters
    ----------
    target : str
        A path, URL or glob.
    key : str, optional
        As in `oocdata.open`.
    opening : Opening, optional
        The other arguments of `oocdata.open`.

    Returns
    -------
    Description

    Raises
    ------
    oocdata.errors.SourceError, oocdata.errors.ArgumentError
        As `oocdata.open`.

    Examples
    --------
    >>> import tempfile, numpy as np
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.save(f"{folder}/a.npy", np.zeros((10, 3), ">f4"))
    ...     found = describe(f"{folder}/a.npy")
    >>> found.shape, found.dtype, found.row_bytes, found.shuffling.kind
    ((10, 3), 'float32', 12, 'full')
    """
    how = opening or Opening()
    view = how.view(target, key)
    storage = view.storage
    return Description(
        path=storage.path,
        key=storage.key,
        files=len(storage.parts),
        format=storage.format,
        shape=view.shape,
        sample_shape=view.sample_shape,
        dtype=str(view.dtype),
        row_bytes=view.spec.nbytes,
        memory_bytes=view.nbytes,
        stored_bytes=storage.stored_bytes,
        storage=storage.layout,
        codec=storage.codec,
        chunk_rows=rows_together(view),
        reading=storage.reading,
        shuffling=shuffling_of(view),
        code=_code(how.code(target, storage.key if key is None else key)),
        dimensions=storage.dimensions,
    )


def _code(call: str) -> tuple[str, ...]:
    return (
        "import oocdata as ooc",
        f"frames = {call}",
        "train, val, test = frames.split(0.6, 0.2, 0.2)",
        f"loader = train.next_frame().batches({BATCH_SIZE}, shuffle=True, seed=7)",
        "model.fit(loader.to_tf(), epochs=10, shuffle=False)",
    )
