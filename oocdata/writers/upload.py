"""Write Zarr to a store: upload the chunks as they are made, and the metadata last.

A store has no rename. Until the array's metadata is put, in one request, no array of that name
exists, only objects below the name, and a folder on this machine that records the progress. An
existing array is never replaced, because it would be missing meanwhile.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b
from typing import Any, ClassVar, Literal

from numpy.typing import NDArray

from oocdata.errors import ArgumentError, SourceError
from oocdata.stores.address import Address, client, obstore
from oocdata.stores.answers import Answer, to_source_error
from oocdata.stores.versions import fetch_small
from oocdata.threads import Threads
from oocdata.writers.disk import PARTIAL, empty_folder, remove_folder
from oocdata.writers.target import Format, Target
from oocdata.writers.zarr import ZarrStorage

_METADATA = ("zarr.json", ".zarray", ".zgroup")
_MOST_PUTS = 16
"""Most uploads in flight."""


@dataclass(frozen=True, slots=True)
class Upload:
    """The address of a new array in a store, and the local folder that records the progress.

    Has the interface of `Placement`. A result can be read only under its final name, so it gets
    that name before it is verified.
    """

    on_disk: ClassVar[Literal[False]] = False
    inode: ClassVar = 0  # nothing is renamed

    path: str  #: the URL of the root
    key: str | None  #: of the array below it

    @classmethod
    def of(cls, path: str, key: str | None, target: Format, overwrite: bool) -> Upload:
        """Return an upload; raise if the store does not take Zarr or the name exists already."""
        address = Address.of(path)
        if target != "zarr" or address.root.startswith("http"):
            where = "HTTP, which takes none" if target == "zarr" else f"'{path}'"
            raise ArgumentError(
                "an output in a store must be Zarr (.zarr) at s3://, gs:// or az://; got "
                f"{where}. Write other files to a disk, and copy them."
            )
        if overwrite:
            raise ArgumentError(
                "`overwrite` must be left out for a store, which has no rename: the old array "
                "would be gone before the new one is there. Choose another name, and delete the "
                "old one then."
            )
        placed = cls(address.url, key)
        placed.check()
        return placed

    @property
    def folder(self) -> str:
        """The folder that records the progress, in the folder for temporary files (``TMPDIR``)."""
        name = blake2b(f"{self.path} {self.key}".encode(), digest_size=8).hexdigest()
        return os.path.join(tempfile.gettempdir(), f"oocdata-{os.geteuid()}-{name}{PARTIAL}")

    @property
    def result(self) -> str:
        """The folder of the metadata, until it is uploaded."""
        return os.path.join(self.folder, "result.zarr")

    @property
    def _address(self) -> Address:
        return Address.of(self.path)

    @property
    def _groups(self) -> list[str]:
        """The names of the groups that contain the array, the outermost first."""
        parts = self.key.split("/") if self.key else []
        return ["/".join(parts[:count]) for count in range(len(parts))]

    @property
    def _array(self) -> Address:
        return self._address / (self.key or "")

    def check(self) -> None:
        """Raise if the name exists already, or objects of another upload are below it."""
        is_ours = os.path.exists(self.result)
        if _exists(self._address):
            hint = "Choose another name, or delete it yourself."
            if is_ours:
                hint = (
                    "A conversion to it was stopped on this machine. If it is the result, delete "
                    f"'{self.path}/zarr.json'; the same command then continues at its end. If "
                    "not, choose another name."
                )
            raise ArgumentError(
                "an output in a store must not exist yet, because a store has no rename; "
                f"'{self.path}' does. {hint}"
            )
        if not is_ours and next(_objects(self._address), None) is not None:
            raise ArgumentError(
                f"there must be no objects below the output's name; '{self.path}' "
                "has some, but no metadata: a conversion that was stopped on another machine, or "
                "something else. Choose another name, or delete them yourself."
            )

    def storage(self, target: Target, *, done: int = 0) -> _Uploaded:
        """Return the array under construction."""
        return _Uploaded(target, self.result, self._array, done=done)

    def stored_bytes(self) -> int:
        """Return the number of bytes in the store."""
        return sum(nbytes for _, nbytes in _objects(self._array))

    def place(self) -> None:
        """Upload the metadata: first of the groups, then of the array."""
        self.check()
        for name in [*self._groups, self.key or ""]:
            with open(os.path.join(self.result, name, "zarr.json"), "rb") as file:
                _put(self._address / name / "zarr.json", file.read())

    def withdraw(self) -> None:
        """Delete the metadata, so that the array no longer exists."""
        names = [self.key or "", *self._groups[::-1]]
        _delete([self._address / name / "zarr.json" for name in names])

    def begin(self) -> None:
        """Delete the leftovers of an earlier process, here and in the store.

        The lock must be held.
        """
        if os.path.exists(self.result):
            with suppress(SourceError):
                if not _exists(self._array):  # otherwise the array is complete
                    _delete([address for address, _ in _objects(self._array)])
        empty_folder(self.folder)

    def remove(self) -> None:
        """Delete the folder, and the chunks in the store if they are no complete array."""
        with suppress(OSError):
            self.begin()
        remove_folder(self.folder)


class _Uploaded(ZarrStorage):
    """An array whose metadata is in a local folder at `path`, and whose chunks are in a store."""

    def __init__(self, target: Target, path: str, address: Address, *, done: int = 0) -> None:
        # The objects may have been deleted, or be on another server with the same URL.
        if done and next(_objects(address), None) is None:
            raise SourceError("the store must hold the uploaded part; it holds none of it")
        super().__init__(target, path, done=done)
        self._address = address
        self._threads = Threads(_MOST_PUTS, "oocdata-put")
        self._puts: list[Callable[[], None]] = []
        self._error: Exception | None = None

    def write(self, first: int, values: NDArray[Any]) -> None:
        """Start to upload every chunk or shard of rows, and wait for those of earlier rows."""
        earlier = len(self._puts)
        super().write(first, values)
        names, self._written = self._written, []
        for name in names:
            with open(name, "rb") as file:
                data = file.read()
            os.unlink(name)
            address = self._address / os.path.relpath(name, self._folder)
            self._puts.append(self._threads.begin(partial(self._upload, address, data)))
        self._wait(earlier)

    def _upload(self, address: Address, data: bytes) -> None:
        try:
            _put(address, data)
        except Exception as error:  # raised where the upload is waited for
            self._error = error

    def _wait(self, number: int) -> None:
        """Wait for the first uploads; raise the error of one that failed."""
        for _ in range(number):
            self._puts[0]()
            del self._puts[0]  # only now: after Ctrl-C, `abandon` waits for it
        if self._error is not None:
            raise self._error

    def save(self) -> None:
        """Wait until the store has every object."""
        self._wait(len(self._puts))

    def abandon(self) -> None:
        """Wait until no upload is in flight, and end the threads."""
        super().abandon()
        while self._puts:
            self._puts.pop()()
        self._threads.close()


def _exists(address: Address) -> bool:
    """Return whether there is the metadata of an array or a group."""
    answers = fetch_small([address / name for name in _METADATA])
    for answer in answers:
        if isinstance(answer, SourceError):
            raise answer
    return any(isinstance(answer, Answer) for answer in answers)


def _objects(address: Address) -> Iterator[tuple[Address, int]]:
    """Yield the addresses of the objects below an address, and their sizes in bytes."""
    try:
        for page in obstore().list(client(address.root, writes=True), address.name):
            for entry in page:
                yield Address(address.root, entry["path"]), entry["size"]
    except SourceError:
        raise
    except Exception as error:  # the exceptions of obstore have no other common base class
        raise to_source_error(error, address.url) from None


def _put(address: Address, data: bytes) -> None:
    # A single request is atomic.
    _write("put", address, address.name, data, use_multipart=False)


def _delete(addresses: list[Address]) -> None:
    """Delete objects of one store, many per request."""
    if addresses:
        _write("delete", addresses[0], [address.name for address in addresses])


def _write(method: str, address: Address, *arguments: Any, **options: Any) -> None:
    """Call a function of obstore that writes to the store of an address."""
    try:
        getattr(obstore(), method)(client(address.root, writes=True), *arguments, **options)
    except Exception as error:  # as in `_objects`
        raise to_source_error(error, address.url) from None
