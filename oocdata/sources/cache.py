"""Passing: the budget by its old name."""

from typing import Any

from oocdata.sources import slots


class _Budget:
    @property
    def budget(self) -> int:
        return slots.chunk_budget()

    @budget.setter
    def budget(self, nbytes: int) -> None:
        slots.set_chunk_budget(nbytes)

    def clear(self) -> None:
        slots.set_chunk_budget(slots.chunk_budget())


def chunk_cache() -> Any:
    return _Budget()
