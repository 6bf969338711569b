"""What bytes that will be read soon cost: requests, and how many bytes they bring."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from oocdata.engines.soon import Soon
from oocdata.memory import scratch_share
from oocdata.stores.asked import ask
from oocdata.stores.files import StoredFile
from oocdata.stores.link import REQUESTS
from oocdata.stores.objects import StoredObjects
from oocdata.stores.pieces import joined

__all__ = ["Cost", "cost_of", "fetch_all"]


class Cost(NamedTuple):
    """What it takes to fetch some bytes.

    Attributes
    ----------
    requests : int
    nbytes : int
        That are sent; more than are used where neighbouring ranges are joined.
    exact : bool
        False where objects are fetched whole whose lengths are not known.
    """

    requests: int = 0
    nbytes: int = 0
    exact: bool = True

    @property
    def trips(self) -> int:
        """Round trips that follow one another, if all is asked for at once.

        Examples
        --------
        >>> Cost(requests=65, nbytes=1000).trips
        2
        """
        return max(-(-self.requests // REQUESTS), -(-self.nbytes // scratch_share()))


def cost_of(all_soon: Iterable[Soon]) -> Cost:
    """Return what it costs to ask for bytes together, as `oocdata.engines.soon.asked` does.

    Examples
    --------
    >>> cost_of([])
    Cost(requests=0, nbytes=0, exact=True)
    """
    requests, nbytes, exact = 0, 0, True
    for file, wanted in _by_file(all_soon).items():
        if isinstance(file, StoredObjects):
            number = sum(not file.is_kept(name) for name in _names(wanted))
            requests, nbytes = requests + number, nbytes + number * file.usual_bytes
            exact = exact and not number
        else:
            offsets, counts = _runs(wanted)
            if file.entry is not None:
                offsets, counts = file.entry.missing(offsets, counts)
            if not len(offsets):
                continue
            starts, stops, _ = joined(offsets, counts)
            requests, nbytes = requests + len(starts), nbytes + int((stops - starts).sum())
    return Cost(requests, nbytes, exact)


def fetch_all(all_soon: Iterable[Soon]) -> int:
    """Fetch bytes that nobody reads, and return how many came.

    Raises
    ------
    oocdata.errors.SourceError
    """
    found = 0
    for file, wanted in _by_file(all_soon).items():
        if isinstance(file, StoredObjects):
            names = _names(wanted)
            with file.asking([names]):
                found += sum(len(data) for data in file.take(names) if data is not None)
            continue
        with ask(file, *_runs(wanted)) as asked:
            for number in range(len(asked.starts)):
                found += len(asked.take(number).data)
                asked.drop(number)
    return found


def _by_file(all_soon: Iterable[Soon]) -> dict[Any, list[Any]]:
    files: dict[StoredFile | StoredObjects, list[Any]] = {}
    for one in all_soon:
        assert isinstance(one.file, StoredFile | StoredObjects)
        files.setdefault(one.file, []).append(one.wanted)
    return files


def _names(wanted: Iterable[Any]) -> list[str]:
    return list(dict.fromkeys(name for names in wanted for name in names))


def _runs(wanted: Iterable[Any]) -> tuple[Any, Any]:
    """Return offsets and lengths of runs, each once."""
    runs = np.concatenate([np.stack(one[:2], axis=1) for one in wanted])
    offsets, counts = np.unique(runs, axis=0).T
    return offsets, counts
