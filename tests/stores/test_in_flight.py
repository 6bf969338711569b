"""Hold answers until they are dropped, and no longer."""

from __future__ import annotations

import weakref
from functools import partial
from typing import Any

import pytest

from oocdata.memory import lowered_limit
from oocdata.stores.budget import Request
from oocdata.stores.in_flight import RequestGroup
from oocdata.stores.link import link


class Answer:
    """An object whose end can be observed."""


def asked(fetch: Any, *sizes: int, at_once: bool = False) -> RequestGroup[Any]:
    each = {one: Request(partial(fetch, one), size, size) for one, size in enumerate(sizes)}
    return RequestGroup(each, at_once=at_once)


def test_an_answer_is_gone_once_it_is_dropped_and_the_others_stay() -> None:
    made: dict[int, weakref.ref[Answer]] = {}

    async def fetch(number: int, request: object) -> Answer:
        answer = Answer()
        made[number] = weakref.ref(answer)
        return answer

    async def nothing() -> None: ...

    held = asked(fetch, 1, 1)
    held.begin()
    assert [held.take(number) is made[number]() for number in (0, 1)] == [True, True]
    held.drop(0)
    link().start(nothing).result()  # what was called in the loop before it is done
    assert made[0]() is None
    assert made[1]() is not None
    held.close()
    link().start(nothing).result()
    assert made[1]() is None


def test_an_answer_that_failed_makes_room_before_its_block_ends() -> None:
    """A reader waits for room, while another thread still has the failed answer requested."""

    async def fetch(number: int, request: object) -> int:
        if number == 0:
            raise ValueError("it is not there")
        return number

    with lowered_limit(4 << 20), asked(fetch, 1 << 20, 1) as held:
        with pytest.raises(ValueError, match="not there"):
            held.take(0)
        with asked(fetch, (1 << 20) - 1, at_once=True) as own, pytest.raises(ValueError):  # noqa: PT011
            own.take(0)
        assert held.take(1) == 1
