"""``python -m benchmarks.stores``: arrays behind HTTP, ours beside plain requests and other ways.

nginx serves them out of a network of its own, behind a delay and a rate (``tests/servers``, which
needs root on Linux). Each way has a process of its own; they take turns, an epoch each, or the
batches of some seconds. What is compared is bytes of elements that are delivered in a second.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.taking_turns import Batches, measured, passes, serve
from oocdata.tools.demo.data import workspace

__all__ = ["CASES", "WAYS", "Case", "first_batch", "main", "resident", "write"]

_SECONDS = 3.0
"""After so many a rival's round ends with the batch that it is at."""

_BYTES_OF_BATCH = 4 << 20


@dataclass(frozen=True, slots=True)
class Case:
    """An array in a file: below `name`, under `key`, with rows of so many bytes."""

    name: str
    key: str | None
    row_bytes: int = 1 << 16

    @property
    def batch(self) -> int:
        """Rows of a batch."""
        return max(1, _BYTES_OF_BATCH // self.row_bytes)


CASES = {
    "zarr": Case("rows.zarr", "x"),
    "hdf5-gzip": Case("gzip.h5", "x"),
    "hdf5": Case("plain.h5", "x"),
    "npy-64k": Case("rows.npy", None),
    "npy-1m": Case("large.npy", None, 1 << 20),
}


def write(case: Case, folder: Path, nbytes: int) -> None:
    """Write the file of a case, with so many bytes of elements that compress by half."""
    import h5py
    import zarr

    path = folder / case.name
    if path.exists():
        return
    shape = (nbytes // case.row_bytes, case.row_bytes // 512, 128)
    array = np.random.default_rng(0).integers(0, 4000, shape, "i4")
    chunks = (8, *shape[1:])
    if path.suffix == ".npy":
        np.save(path, array)
    elif path.suffix == ".zarr":
        group = zarr.open_group(path, mode="w")
        names = ("row", "y", "x")
        group.create_array("x", data=array, chunks=chunks, dimension_names=names)
        with warnings.catch_warnings(action="ignore"):  # consolidated metadata are no standard yet
            zarr.consolidate_metadata(path)
    else:
        packed = {"chunks": chunks, "compression": "gzip", "compression_opts": 1, "shuffle": True}
        with h5py.File(path, "w") as file:
            file.create_dataset("x", data=array, **(packed if case.name == "gzip.h5" else {}))


# Ours.


def _loader(case: Case, place: str, cache: str | None = None) -> Any:
    import oocdata as ooc

    array = ooc.open(f"{place}/{case.name}", case.key, cache=cache)
    return array.batches(case.batch, shuffle=True, seed=1)


def _ours(case: Case, place: str, cache: str | None = None, *, to_tf: bool = False) -> Batches:
    from oocdata.engines.cache import cache as decoded

    epoch = passes(_loader(case, place, cache), to_tf=to_tf)

    def batches() -> Any:
        decoded.forget()
        return epoch()

    return batches


def _plain(case: Case, url: str) -> Batches:
    """Return what asks for the ranges of one of our epochs again, as many at a time."""
    from obstore import get_async
    from obstore.store import from_url

    from oocdata.stores.link import REQUESTS, Link

    asked: list[tuple[str, Any]] = []
    ask = Link._ask

    async def noted(self: Link, address: Any, start: int, stop: int | None, *others: Any) -> Any:
        suffix = {"suffix": -start} if start < 0 else None
        asked.append((address.name, suffix if stop is None else (start, stop)))
        return await ask(self, address, start, stop, *others)

    epoch = _ours(case, url)
    Link._ask = noted  # type: ignore[method-assign]
    try:
        delivered = sum(batch.nbytes for batch in epoch())
    finally:
        Link._ask = ask  # type: ignore[method-assign]
    options: Any = {"timeout": "1 day", "connect_timeout": "10s", "allow_http": True}
    client: Any = from_url(url, client_options=options)

    async def get(left: Iterator[tuple[str, Any]]) -> None:
        for name, some in left:
            answer = await get_async(client, name, options={"range": some} if some else None)
            await answer.bytes_async()

    async def all_of_them() -> None:
        left = iter(asked)
        await asyncio.gather(*(get(left) for _ in range(REQUESTS)))

    def batches() -> Iterator[int]:
        asyncio.run(all_of_them())
        yield delivered

    return batches


# Rivals, each as its users write it; none imports anything of ours.


def _some(case: Case, rows: int, take: Callable[[Any], Any]) -> Batches:
    """Return what delivers batches of rows drawn at random, sorted within each."""
    random = np.random.default_rng(0)

    def batches() -> Iterator[Any]:
        began, order = time.perf_counter(), random.permutation(rows)
        for start in range(0, rows, case.batch):
            yield take(np.sort(order[start : start + case.batch]))
            if time.perf_counter() - began > _SECONDS:
                return

    return batches


def _zarr_store(case: Case, url: str) -> Any:
    from obstore.store import from_url
    from zarr.storage import ObjectStore

    client = from_url(f"{url}/{case.name}", client_options={"allow_http": True})
    return ObjectStore(client, read_only=True)


def _zarr(case: Case, url: str) -> Batches:
    import zarr

    array = zarr.open_array(_zarr_store(case, url), path=case.key, mode="r")
    return _some(case, array.shape[0], lambda rows: array.oindex[rows])


def _h5py(case: Case, url: str) -> Batches:
    import fsspec
    import h5py

    array = h5py.File(fsspec.open(f"{url}/{case.name}").open())[case.key]
    return _some(case, len(array), lambda rows: np.stack([array[row] for row in rows.tolist()]))


def _xarray(case: Case, url: str) -> Batches:
    import fsspec
    import xarray

    if case.name.endswith(".zarr"):
        opened = xarray.open_zarr(_zarr_store(case, url), chunks=None)
    else:
        file = fsspec.open(f"{url}/{case.name}").open()
        opened = xarray.open_dataset(file, engine="h5netcdf", phony_dims="sort")
    array = opened[case.key]
    return _some(case, len(array), lambda rows: array.isel({array.dims[0]: rows}).values)


def _insitubatch(case: Case, url: str) -> Batches:
    from insitubatch import InSituDataset, obstore_store, open_geometries, split_by_chunk

    store = obstore_store(f"{url}/{case.name}", client_options={"allow_http": True})
    geometries = open_geometries(store, variables=[case.key])
    split = split_by_chunk(geometries[case.key], fractions=(1.0, 0.0, 0.0))

    def batches() -> Iterator[Any]:
        # A new one, or it would have in memory what an epoch before it has read.
        dataset = InSituDataset(
            store, split, geometries, batch_size=case.batch, block_chunks=64, max_inflight=64
        )
        for batch in dataset.train:
            yield batch.arrays[case.key]

    return batches


WAYS: dict[str, tuple[str, tuple[str, ...], Callable[[Case, str], Batches]]] = {
    "oocdata NumPy": ("", (), _ours),
    "plain GETs": ("", (), _plain),
    "oocdata to_tf": ("", (), lambda case, url: _ours(case, url, to_tf=True)),
    "insitubatch": (".zarr", ("insitubatch",), _insitubatch),
    "zarr-python": (".zarr", ("zarr", "obstore"), _zarr),
    "xarray, open_zarr": (".zarr", ("xarray", "zarr", "obstore"), _xarray),
    "fsspec, h5py": (".h5", ("h5py", "fsspec", "aiohttp"), _h5py),
    "xarray, h5netcdf": (".h5", ("xarray", "h5netcdf", "fsspec", "aiohttp"), _xarray),
}
"""The files that a way reads, the packages of a rival, and what makes passes."""

_KEPT = {"kept": "oocdata, cache folder", "local": "oocdata, local file"}


def _bytes_of(batch: Any) -> int:
    if isinstance(batch, int):
        return batch
    nbytes = getattr(batch, "nbytes", None)
    return int(np.prod(batch.shape)) * batch.dtype.size if nbytes is None else int(nbytes)


def _installed(python: str, packages: tuple[str, ...]) -> bool:
    looked = f"import importlib.util as u; exit(not all(map(u.find_spec, {packages})))"
    return not subprocess.run([python, "-c", looked]).returncode


# Other figures.


def first_batch(case: Case, url: str, local: str) -> dict[str, float]:
    """Return the seconds and requests from the opening to the first batch; its code is loaded."""
    from oocdata.stores.link import link

    next(iter(_loader(case, local)))
    before, began = link().traffic.requests, time.perf_counter()
    next(iter(_loader(case, url)))
    seconds = time.perf_counter() - began
    return {"seconds": seconds, "requests": link().traffic.requests - before}


def resident(case: Case, url: str, local: str) -> dict[str, float]:
    """Return how much memory an epoch took at most, beside what `explain` says."""
    from benchmarks.memory import forget_peak, memory, peak
    from oocdata.engines.cache import cache as decoded
    from oocdata.stores.link import link

    next(iter(_loader(case, local)))  # loads libraries
    link()
    decoded.forget()
    before = memory().total
    forget_peak()
    loader = _loader(case, url)
    for _ in loader:
        pass
    grown = max(peak(), memory().total) - before
    return {"peak": grown, "stated": loader.explain().resident_bytes}


_FIGURES = {"first": first_batch, "memory": resident}


def _figure(way: str, given: list[str], **environment: str) -> dict[str, float]:
    command = [sys.executable, "-m", "benchmarks.stores", "--way", way, *given]
    ran = subprocess.run(
        command, env={**os.environ, **environment}, stdout=subprocess.PIPE, text=True, check=True
    )
    return dict(json.loads(ran.stdout))


def _serve(options: argparse.Namespace) -> None:
    """Do what a process does: serve a way, or print a figure."""
    (case,) = (CASES[name] for name in options.case)
    (way,) = options.way
    local = str(options.folder)
    if way in _FIGURES:
        print(json.dumps(_FIGURES[way](case, options.url, local)))
    elif way == "local":
        serve(_ours(case, local), _bytes_of)
    elif way == "kept":
        serve(_ours(case, options.url, f"{local}/kept"), _bytes_of)
    else:
        serve(WAYS[way][2](case, options.url), _bytes_of)


def _rates(each: list[dict[str, float]]) -> list[float]:
    return [one["count"] / one["seconds"] / 1e6 for one in each]


def _print(found: dict[str, list[dict[str, float]]], name: str, ours: str) -> None:
    """Print medians; ours is the way of that name, or the first."""
    mine = _rates(found.get(ours) or next(iter(found.values()), []))
    for way, each in found.items():
        rates = _rates(each)
        times = statistics.median(our / rate for our, rate in zip(mine, rates, strict=True))
        cpu = statistics.median(1e9 * one["cpu"] / one["count"] for one in each)
        seconds = statistics.median(one["seconds"] for one in each)
        figures = f"{statistics.median(rates):,.1f} | {cpu:,.2f} | {seconds:.2f} | {times:.2f}"
        print(f"| {name} | {way} | {figures} |", flush=True)


def _table(options: argparse.Namespace, url: str, folder: Path) -> None:
    rival = options.python312 or sys.executable
    print("| case | way | MB/s | CPU, ms a MB | seconds a round | ours is faster |")
    print("|---|---|---:|---:|---:|---:|", flush=True)
    for name in options.case:
        given = ["--case", name, "--url", url, "--folder", str(folder)]
        pythons = {
            way: rival if packages else sys.executable
            for way, (ending, packages, _) in WAYS.items()
            if CASES[name].name.endswith(ending) and way in options.way
        }
        absent = {way for way, python in pythons.items() if not _installed(python, WAYS[way][1])}
        there = [way for way in pythons if way not in absent]
        found = measured("benchmarks.stores", there, given, options.rounds, pythons=pythons)
        _print(found, name, "oocdata NumPy")
        for way in absent:
            print(f"| {name} | {way}: not installed | | | | |")
        if "kept" not in options.way:
            continue
        for warm_up, when in ((1, ""), (0, ", new process")):
            rounds = options.rounds if warm_up else 1
            again = measured("benchmarks.stores", _KEPT, given, rounds, warm_up=warm_up)
            _print({_KEPT[way] + when: each for way, each in again.items()}, name, "")


def _figures(options: argparse.Namespace, url: str, folder: Path) -> None:
    print("\n| case | figure | |\n|---|---|---:|")
    for name in options.case:
        given = ["--case", name, "--url", url, "--folder", str(folder)]
        if "first" in options.way:
            each = [_figure("first", given) for _ in range(options.rounds)]
            seconds = statistics.median(one["seconds"] for one in each)
            trips = f", {1000 * seconds / options.delay:.1f} round trips" if options.delay else ""
            requests = f"{each[0]['requests']} requests"
            print(f"| {name} | opened, first batch | {seconds:.2f} s{trips}, {requests} |")
        for mebibytes in (64, 512) if "memory" in options.way else ():
            held = _figure("memory", given, OOCDATA_MEMORY=str(mebibytes << 20))
            text = f"{held['peak'] / 1e6:.0f} MB, stated {held['stated'] / 1e6:.0f} MB"
            print(f"| {name} | memory at most, of {mebibytes} MiB | {text} |", flush=True)


def main(arguments: list[str] | None = None) -> int:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.stores", description=__doc__)
    ways = [*WAYS, "kept", *_FIGURES]
    everything: Any = {"nargs": "+", "metavar": "NAME"}
    parser.add_argument("--delay", type=float, default=100, help="round trip, ms (100); 0: none")
    parser.add_argument("--rate", type=float, help="megabits a second (no limit)")
    parser.add_argument("--case", default=[*CASES], choices=CASES, **everything)
    parser.add_argument("--way", default=ways, choices=[*ways, "local"], **everything)
    parser.add_argument("--rounds", type=int, default=3, help="counted rounds (3)")
    parser.add_argument("--mb", type=int, default=256, help="MiB of elements of a case (256)")
    parser.add_argument("--python312", help="a Python that has the rivals' packages (this one)")
    parser.add_argument("--folder", type=Path, help="where files are, or are kept; else removed")
    parser.add_argument("--url", help="serve one way on one case (what the processes do)")
    options = parser.parse_args(arguments)
    if options.url:
        _serve(options)
        return 0
    sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
    from servers.link import Link
    from servers.nginx import Nginx

    with ExitStack() as stack:
        folder = options.folder or stack.enter_context(workspace())
        folder.mkdir(exist_ok=True)
        for name in options.case:
            write(CASES[name], folder, options.mb << 20)
        link = stack.enter_context(Link(options.delay, options.rate)) if options.delay else None
        url = stack.enter_context(Nginx(folder, link)).url
        print(f"{options.mb} MiB a case, {options.delay:g} ms, median of {options.rounds}\n")
        _table(options, url, folder)
        _figures(options, url, folder)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
