"""What ``--quick`` runs: fewer rows, and the ways that matter most."""

from __future__ import annotations

from dataclasses import replace

from benchmarks.section import Section
from benchmarks.sections import BULK, COPY, DECODE, NUMPY, SECTIONS, TF

__all__ = ["QUICK"]


def _quick(section: Section, rows: int, *ways: str) -> Section:
    return replace(
        section, cases=tuple(replace(case, rows=rows) for case in section.cases[:1]), ways=ways
    )


QUICK = {
    section.name: section
    for section in (
        _quick(
            SECTIONS["pairs"],
            4_000,
            TF,
            NUMPY,
            "from_generator",
            "per-element py_function",
            "PyDataset, 1 worker",
            "PyTorch, in process",
            "Grain",
            *COPY,
        ),
        _quick(SECTIONS["small"], 60_000, TF, NUMPY, "from_generator", COPY[0]),
        _quick(SECTIONS["gzip"], 20_000, TF, NUMPY, "h5py, index list", *DECODE),
        _quick(
            SECTIONS["zarr"], 20_000, TF, NUMPY, "zarr, oindex", "TensorStore, index list", BULK
        ),
        replace(SECTIONS["sparse"], cases=SECTIONS["sparse"].cases[1:], ways=(NUMPY,)),
    )
}
"""The sections, by name."""
