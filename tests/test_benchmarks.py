"""The benchmark suite: every way delivers every row once, and the figures are computed right."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from servers.ranges import RangeServer

from benchmarks import __main__ as command
from benchmarks import rounds
from benchmarks.case import Case
from benchmarks.check import check
from benchmarks.files import array_path, can_evict, evict, write
from benchmarks.generators import WAYS as GENERATOR_WAYS
from benchmarks.layouts import __main__ as layouts_command
from benchmarks.layouts.__main__ import quick
from benchmarks.layouts.layout import Elements, prepare
from benchmarks.layouts.table import LAYOUTS
from benchmarks.layouts.ways import BESIDE, LIMIT, MAKERS, OURS
from benchmarks.machine import machine
from benchmarks.picture import draw
from benchmarks.pictures import WAYS as PICTURE_WAYS
from benchmarks.pictures import write as write_pictures
from benchmarks.quick import QUICK
from benchmarks.ragged import WAYS as RAGGED_WAYS
from benchmarks.ragged import rows_of
from benchmarks.ragged import write as write_rows
from benchmarks.records import SIZES
from benchmarks.records import WAYS as RECORD_WAYS
from benchmarks.records import path_of as record_path
from benchmarks.records import write as write_records
from benchmarks.report import as_json, section_table
from benchmarks.results import Figure, Results, ratio
from benchmarks.rounds import Plan, Process, run
from benchmarks.section import Section
from benchmarks.sections import SECTIONS
from benchmarks.series import INPUTS, windows_of
from benchmarks.series import WAYS as SERIES_WAYS
from benchmarks.series import write as write_series
from benchmarks.stores import CASES as STORE_CASES
from benchmarks.stores import WAYS as STORE_WAYS
from benchmarks.stores import first_batch, resident
from benchmarks.stores import write as write_stored
from benchmarks.ways import WAYS, Way
from oocdata.engines.cache import cache

PAIRS = Case("pairs", "npy", 50, (2, 3, 4), "f8", 8, pairs=True)
CASES = {
    case.name: case
    for case in (
        PAIRS,
        Case("bytes", "npy", 50, (4, 5), "u1", 8),
        Case("rows-hdf5", "hdf5", 50, (2, 3), "f8", 8),
        Case("gzip", "hdf5", 48, (16,), "f4", 8, 8, "gzip+shuffle", order="block"),
        Case("zstd", "zarr", 48, (16,), "f4", 8, 8, "zstd", order="block"),
        Case("sharded", "zarr", 48, (16,), "f4", 8, 8, "zstd", 16),
        Case("zarr-pairs", "zarr", 48, (16,), "f4", 8, 8, pairs=True),
    )
}
QUIET = Plan(rounds=1, seconds=5.0, check_seconds=30.0, say=lambda line: None)


def figures(**rates: list[float]) -> Results:
    kinds = {"ours": "ours", "limit": "limit"}
    case = replace(PAIRS, name="c")
    return Results(
        (case,),
        [Figure("c", name, kinds.get(name, "peer"), rates=rate) for name, rate in rates.items()],
    )


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_a_file_holds_the_rows_that_are_asked_for(case: Case, tmp_path: Path) -> None:
    import h5py
    import zarr

    path = array_path(case, write(case, tmp_path))
    if case.format == "hdf5":
        with h5py.File(path) as file:
            found = file["data"][:]
    else:
        found = np.load(path) if case.format == "npy" else zarr.open_array(path, mode="r")[:]
    np.testing.assert_array_equal(found, case.values(0, case.rows))
    np.testing.assert_array_equal(case.rows_of(found), np.arange(case.rows))


def test_a_sparse_file_takes_no_room(tmp_path: Path) -> None:
    case = Case("sparse", "npy sparse", 10**9, (4,), "u1", 8)
    path = write(case, tmp_path)
    assert path.stat().st_size > 4 * 10**9
    assert path.stat().st_blocks * 512 < 10**6
    assert np.load(path, mmap_mode="r").shape == (10**9, 4)


# In a run each way has a process of its own; here one process tries many, for the sake of time.
_SESSION = """
import dataclasses, json, os, sys
from pathlib import Path
from benchmarks.check import check
from benchmarks.ways import WAYS, Way
from oocdata.engines.cache import cache
from benchmarks.worker import case_from

if __name__ == "__main__":
    for name, case_text, path in json.loads(sys.argv[1]):
        case, way, file = case_from(case_text), WAYS[name], Path(path)
        if way.convert is not None:
            folder = file.parent / name.replace(" ", "-")
            folder.mkdir(exist_ok=True)
            link = folder / file.name
            if not link.exists():
                link.symlink_to(file)
            file = way.convert(case, link)
        dataset = way.make(case, file)
        for epoch in range(2):
            if way.kind == "limit":
                found = {"elements": sum(dataset)}
            else:
                found = dataclasses.asdict(check(case, dataset, 60))
            print(json.dumps([name, case.name, found]), flush=True)
        del dataset
    os._exit(0)
"""


def delivered(folder: Path, entries: list[tuple[str, Case]]) -> list[tuple[str, str, Any]]:
    script = folder / "session.py"
    script.write_text(_SESSION)
    described = [
        (name, json.dumps(dataclasses.asdict(case)), str(write(case, folder)))
        for name, case in entries
    ]
    done = subprocess.run(
        [sys.executable, str(script), json.dumps(described)],
        env=os.environ | {"PYTHONPATH": str(Path(command.__file__).parent.parent)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    lines = [line for line in done.stdout.splitlines() if line.startswith('["')]
    return [tuple(json.loads(line)) for line in lines]


def installed(*, tensorflow: bool) -> list[tuple[str, Case]]:
    entries = [
        (way.name, case)
        for way in WAYS.values()
        for case in CASES.values()
        if not way.missing and way.applies(case) and ("tensorflow" in way.packages) == tensorflow
    ]
    # A pool of processes takes seconds to start: once is enough.
    return [
        (name, case)
        for name, case in entries
        if case is PAIRS or not (name.startswith("PyTorch") and name.endswith("workers"))
    ]


@pytest.mark.thorough
@pytest.mark.parametrize("tensorflow", [False, True], ids=["without TensorFlow", "with it"])
def test_every_way_delivers_every_row_once_in_each_epoch(tensorflow: bool, tmp_path: Path) -> None:
    entries = installed(tensorflow=tensorflow)
    assert {"oocdata to_tf" if tensorflow else "oocdata NumPy"} <= {name for name, _ in entries}
    found = delivered(tmp_path, entries)
    assert [(name, case) for name, case, _ in found] == [
        (name, case.name) for name, case in entries for _ in range(2)
    ]
    for name, case_name, result in found:
        case = CASES[case_name]
        # xbatcher leaves the short batch at the end out.
        left_out = case.elements % case.batch if name == "xbatcher" else 0
        assert result["elements"] == case.elements - left_out, (name, case_name)
        if WAYS[name].kind != "limit":
            assert result["wrong"] == 0, (name, case_name)
            assert result["distinct"] == result["elements"], (name, case_name)


def test_ways_that_are_not_installed_are_listed_and_not_run(tmp_path: Path) -> None:
    WAYS["absent"] = replace(WAYS["oocdata NumPy"], name="absent", packages=("no_such_module",))
    try:
        section = Section("s", "title", (PAIRS,), ways=("absent",))
        results = run(section, tmp_path, QUIET)
    finally:
        del WAYS["absent"]
    (figure,) = results
    assert figure.status == "not installed: no_such_module"
    assert "not installed: no_such_module" in section_table(section, results)


def test_a_run_measures_in_turns_and_looks_at_the_end(tmp_path: Path) -> None:
    lines: list[str] = []
    plan = replace(QUIET, rounds=2, say=lines.append)
    section = Section("s", "title", (PAIRS,), ways=("oocdata NumPy", "limit: copy, 1 thread"))
    ours, limit = run(section, tmp_path, plan)
    assert [line.split(":")[1].split("  ")[0].strip() for line in lines] == [
        "oocdata NumPy",
        "limit",
    ] * 3
    assert ours.status == limit.status == "measured"
    assert len(ours.rates) == len(limit.rates) == 2
    assert ours.check["distinct"] == PAIRS.elements
    assert ours.sound
    assert ours.bound
    assert len(ours.first_batch) == 1


def test_a_cold_round_begins_without_the_file_in_the_page_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = Case("cold", "npy", 64, (1024,), "f8", 8, cache="cold")
    path = write(case, tmp_path)
    path.read_bytes()
    if not can_evict():
        pytest.skip("posix_fadvise is not there")
    assert evict(path) == 0
    held = np.load(path, mmap_mode="r")
    held.sum()
    assert evict(path) > 0.5  # what is mapped stays: so no process lives through cold rounds
    del held
    started: list[str] = []

    class Counted(Process):
        def __init__(self, way: Way, *rest: Any) -> None:
            started.append(way.name)
            super().__init__(way, *rest)

    monkeypatch.setattr(rounds, "Process", Counted)
    section = Section("s", "title", (case,), ways=("oocdata NumPy",))
    (figure,) = run(section, tmp_path, QUIET)
    assert figure.status == "measured"
    assert figure.evicted == 1
    # The warm-up, one round, and the pass that looks: each in a process of its own.
    assert started == ["oocdata NumPy"] * 3


def test_a_way_that_fails_is_told_and_the_others_go_on(tmp_path: Path) -> None:
    section = Section("s", "title", (PAIRS,), ways=("oocdata NumPy", "limit: copy, 1 thread"))
    path = write(PAIRS, tmp_path)
    path.write_bytes(path.read_bytes()[:-100])
    ours, limit = run(section, tmp_path, QUIET)
    assert ours.status.startswith("failed: ")
    assert limit.status.startswith("failed: ")
    assert str(path) in ours.status
    assert not ours.rates


@pytest.mark.parametrize(
    ("batches", "wrong", "distinct"),
    [
        ([[0, 1], [2, 3]], 0, 4),
        ([[0, 1], [1, 2]], 0, 3),
        ([[0, 1], [2, -1]], 1, 4),
    ],
    ids=["sound", "a row twice", "a row in pieces"],
)
def test_a_check_sees_what_came_twice_or_wrong(
    batches: list[list[int]], wrong: int, distinct: int
) -> None:
    case = Case("c", "npy", 10, (4,), "f8", 2)
    rows = case.values(0, 10)
    broken = rows[:1].copy()
    broken[0, -1] = 7
    made = [
        np.concatenate([rows[[i]] if i >= 0 else broken for i in some]).copy() for some in batches
    ]
    found = check(case, made, 60)
    assert (found.elements, found.wrong, found.distinct) == (4, wrong, distinct)
    assert found.complete
    assert found.sound == (wrong == 0 and distinct == 4)


def test_a_check_sees_pairs_that_do_not_follow_one_another() -> None:
    case = Case("c", "npy", 10, (4,), "f8", 2, pairs=True)
    rows = case.values(0, 10)
    assert check(case, [(rows[:4], rows[1:5])], 60).sound
    assert check(case, [(rows[:4], rows[2:6])], 60).wrong == 4


def test_entropy_is_that_of_a_full_shuffle_only_when_it_is_one() -> None:
    case = Case("c", "npy", 6400, (4,), "f8", 64)
    rows = case.values(0, 6400)
    shuffled = rows[np.random.default_rng(0).permutation(6400)]
    in_order = check(case, rows.reshape(100, 64, 4), 60)
    mixed = check(case, shuffled.reshape(100, 64, 4), 60)
    assert in_order.entropy == pytest.approx(0.27, abs=0.2)  # parts end within batches
    assert mixed.entropy == pytest.approx(mixed.full_entropy, abs=0.05)


def test_a_table_has_the_ratios_of_the_same_round() -> None:
    results = figures(ours=[100.0, 10.0, 50.0], slow=[10.0, 1.0, 5.0], limit=[200.0, 50.0, 100.0])
    ours, slow, _ = results
    assert ratio(ours, slow) == 10
    assert ratio(ours, results.limit("c")) == 0.5
    assert ratio(None, slow) is None
    section = Section("s", "title", tuple(results.cases.values()))
    table = section_table(section, results).splitlines()
    assert table[0] == "## s: title"
    cells = [cell.strip() for cell in next(t for t in table if t.startswith("| ours")).split("|")]
    assert cells[2:5] == ["50", "1.92e-05", "0.50"]


def test_json_holds_every_round(tmp_path: Path) -> None:
    results = figures(ours=[100.0, 120.0], slow=[10.0, 11.0])
    section = Section("s", "title", tuple(results.cases.values()))
    found = json.loads(json.dumps(as_json(machine(), 2, 1.0, [(section, results)])))
    (written,) = found["sections"]
    assert written["figures"][0]["rates"] == [100.0, 120.0]
    assert written["cases"][0]["element"] == [2, 3, 4]
    assert found["machine"]["packages"]["numpy"] == np.__version__
    assert found["machine"]["cpu"]


def test_the_picture_shows_every_way_that_was_measured(tmp_path: Path) -> None:
    measured = [
        (
            Section(f"s{number}", "title", tuple(results.cases.values())),
            results,
        )
        for number, results in enumerate(
            [
                figures(ours=[100.0], slow=[1.0], limit=[150.0]),
                figures(ours=[9.0], slow=[0.1]),
                figures(slow=[]),
            ]
        )
    ]
    path = tmp_path / "results.png"
    draw(measured, path)
    assert path.read_bytes().startswith(b"\x89PNG")


def test_quick_is_a_subset_and_every_name_is_known() -> None:
    assert set(QUICK) < set(SECTIONS)
    for section in [*SECTIONS.values(), *QUICK.values()]:
        assert set(section.ways) <= set(WAYS)
        assert section.entries()
        names = [case.name for case in section.cases]
        assert len(set(names)) == len(names)


def test_the_command_lists_and_refuses(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["--list"]) == 0
    listed = capsys.readouterr().out
    assert "pairs (quick): Work A" in listed
    assert "oocdata to_tf" in listed
    with pytest.raises(SystemExit):
        command.main(["--way", "nothing of this name"])
    assert "must be one of" in capsys.readouterr().err


def test_the_command_writes_the_table_the_figures_and_the_picture(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tiny = Section("tiny", "Tiny", (PAIRS,))
    monkeypatch.setitem(SECTIONS, "tiny", tiny)
    output = tmp_path / "results"
    arguments = ["--case", "tiny", "--rounds", "1", "--seconds", "1", "--folder", str(tmp_path)]
    for way in ("oocdata NumPy", "limit: copy, 1 thread"):
        arguments += ["--way", way]
    assert command.main([*arguments, "--output", str(output)]) == 0
    assert "| oocdata NumPy |" in capsys.readouterr().out
    assert "| oocdata NumPy |" in (output / "results.md").read_text()
    assert json.loads((output / "results.json").read_text())["sections"][0]["name"] == "tiny"
    assert (output / "results.png").stat().st_size > 1000
    assert sorted(path.name for path in tmp_path.iterdir()) == ["results"]


@pytest.fixture(scope="module")
def layouts_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("layouts")


def looked_at(name: str, folder: Path, *ways: str) -> None:
    found = quick(LAYOUTS[name], folder, ways)
    assert OURS in found
    for looked in found.values():
        assert looked.sound
        assert looked.complete
        assert looked.elements > 0


WITH_MAKERS = ("well", "robomimic-gzip", "d4rl-from-file")


@pytest.mark.parametrize("name", WITH_MAKERS)
def test_our_lines_deliver_what_the_makers_loop_does(name: str, layouts_folder: Path) -> None:
    looked_at(name, layouts_folder, OURS, BESIDE, LIMIT, MAKERS[0])


# What the code that `info` prints does not do; tests/tools/test_layouts.py has that.
BY_OTHER_WAYS = ("mix", "weights", "h5ad-sparse", "parts-10k")


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[] if name in BY_OTHER_WAYS else [pytest.mark.thorough])
        for name in LAYOUTS
        if name not in WITH_MAKERS
    ],
)
def test_our_lines_deliver_every_layout(name: str, layouts_folder: Path) -> None:
    looked_at(name, layouts_folder, OURS, BESIDE, LIMIT)


def test_a_layout_case_sees_elements_that_are_not_in_the_file(layouts_folder: Path) -> None:
    layout = LAYOUTS["pcam"]
    case = prepare(layout, layouts_folder, 1000)
    elements = Elements(layout, case.target)
    assert case.elements == len(elements)
    batch = [np.stack(arrays) for arrays in zip(*map(elements.__getitem__, (5, 0, 7)), strict=True)]
    assert case.element_bytes * 3 == sum(array.nbytes for array in batch)
    assert case.look(batch)[0].tolist() == [5, 0, 7]
    batch[1][2] += 1  # the label of another picture
    rows, wrong = case.look(batch)
    assert rows.tolist() == [5, 0, -1]
    assert wrong == 1
    twice = check(case, [[array[[0, 0]] for array in batch]], 60)
    assert not twice.sound


def test_layouts_are_measured_in_turns_and_put_into_a_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "page.md"
    page.write_text("above <!-- layouts: begin -->old<!-- layouts: end --> below")
    monkeypatch.setattr(layouts_command, "OURS", LIMIT)  # which takes no TensorFlow to start
    monkeypatch.setattr(layouts_command, "MAKERS", ())
    arguments = ["--only", "pcam", "--bytes", "1000", "--rounds", "1", "--seconds", "0.1"]
    folders = ["--folder", str(tmp_path), "--output", str(tmp_path / "out"), "--into", str(page)]
    assert layouts_command.main([*arguments, *folders]) == 0
    written = page.read_text()
    assert written.startswith("above ")
    assert written.endswith(" below")
    assert "old" not in written
    assert "PCam, contiguous" in written
    assert json.loads((tmp_path / "out" / "layouts.json").read_text())["sections"][0]["figures"]


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pictures")
    write_pictures(folder, 13)
    return folder


@pytest.mark.parametrize("size", [None, (20, 30)], ids=str)
@pytest.mark.parametrize("name", PICTURE_WAYS)
def test_ways_of_picture_files(
    name: str, size: tuple[int, int] | None, pictures: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache, "budget", cache.budget)  # the ways change it
    if "PyTorch" in name:
        pytest.importorskip("torch")
    batches = PICTURE_WAYS[name](pictures, size)
    for _ in range(2):
        shapes = [tuple(images.shape) for images, _ in batches()]
        assert sum(shape[0] for shape in shapes) == 13
        assert {shape[1:] for shape in shapes} == {(*(size or (375, 500)), 3)}


@pytest.mark.parametrize("name", [name for name in GENERATOR_WAYS if "processes" not in name])
def test_ways_of_generators(name: str) -> None:
    batches = GENERATOR_WAYS[name](70, 5)
    for _ in range(2):
        numbers = np.concatenate([np.asarray(numbers) for _, numbers in batches()])
        assert sorted(numbers.tolist()) == list(range(70))


@pytest.mark.parametrize("name", [name for name in RAGGED_WAYS if "generator" not in name])
def test_ways_of_rows_of_unequal_length(name: str, tmp_path: Path) -> None:
    write_rows(tmp_path, 150)
    kind, way = RAGGED_WAYS[name]
    tokens = int(np.load(tmp_path / "tokens.npy").sum(dtype="i8"))
    batches = way(tmp_path)
    for _ in range(2):
        found = list(batches())
        assert sum(map(rows_of, found)) == 150
        whole = [getattr(batch, "values", batch) for batch in found]
        assert sum(int(np.asarray(values).sum(dtype="i8")) for values in whole) == tokens
        if kind == "padded":
            assert {int(batch.shape[1]) for batch in found} == {1024}


@pytest.mark.parametrize("kind", ["lines", "1-KB records"])
@pytest.mark.parametrize("name", RECORD_WAYS)
def test_ways_of_records(name: str, kind: str, tmp_path: Path) -> None:
    import tensorflow as tf

    write_records(tmp_path, kind, 300)
    path = record_path(tmp_path, kind)
    found = [np.asarray(batch).tolist() for batch in RECORD_WAYS[name](path)()]
    if kind == "lines":
        expected = Path(path).read_bytes().splitlines()
    else:
        expected = [row.numpy() for row in tf.data.TFRecordDataset(path)]
    assert len(expected) == 300_000 // SIZES[kind]
    assert sorted(row for rows in found for row in rows) == sorted(expected)


@pytest.mark.parametrize("name", SERIES_WAYS)
def test_ways_of_windows(name: str, tmp_path: Path) -> None:
    write_series(tmp_path, 150)
    rows = np.load(tmp_path / "series.npy")
    found = [tuple(map(np.asarray, batch)) for batch in SERIES_WAYS[name](tmp_path)()]
    assert sum(map(windows_of, found)) == 150
    inputs, targets = (np.concatenate(parts) for parts in zip(*found, strict=True))
    order = np.argsort(inputs[:, 0, 0])
    starts = np.argsort(rows[:150, 0])
    np.testing.assert_array_equal(inputs[order], rows[starts[:, None] + np.arange(INPUTS)])
    np.testing.assert_array_equal(targets[order].reshape(150, -1), rows[starts + INPUTS])


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RangeServer]:
    folder = tmp_path_factory.mktemp("stored")
    for case in STORE_CASES.values():
        write_stored(case, folder, 5 << 20)
    with RangeServer(folder) as server:
        yield server


@pytest.mark.parametrize(
    ("case", "way"),
    [
        (case, way)
        for case, where in STORE_CASES.items()
        for way, (ending, packages, _) in STORE_WAYS.items()
        if where.name.endswith(ending) and "aiohttp" not in packages
    ],
)
def test_ways_of_stores(case: str, way: str, stored: RangeServer) -> None:
    _, packages, make = STORE_WAYS[way]
    for package in packages:
        pytest.importorskip(package)
    batches = make(STORE_CASES[case], stored.url)
    for _ in range(2):
        before = stored.nbytes
        found = [
            batch if isinstance(batch, int) else int(np.asarray(batch).nbytes)
            for batch in batches()
        ]
        assert sum(found) == 5 << 20
        assert stored.nbytes - before > 3 << 19  # over the link, not out of memory


@pytest.mark.parametrize("case", STORE_CASES)
def test_other_figures_of_stores(case: str, stored: RangeServer) -> None:
    given = STORE_CASES[case], stored.url, str(stored.folder)
    assert first_batch(*given)["requests"] > 0
    assert resident(*given)["stated"] > 0
