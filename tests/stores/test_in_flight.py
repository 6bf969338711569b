"""Hold answers until they are dropped, and no longer."""

from __future__ import annotations

import asyncio
import weakref
from functools import partial
from typing import Any

import pytest

from oocdata.memory import lowered_limit, scratch_share
from oocdata.stores.budget import Request
from oocdata.stores.link import link


class Answer:
    """An object whose end can be observed."""


def asked(fetch: Any, *sizes: int) -> list[Request[Any]]:
    return [Request(partial(fetch, one), size, size) for one, size in enumerate(sizes)]


def test_an_answer_is_gone_once_it_is_dropped_and_the_others_stay() -> None:
    made: dict[int, weakref.ref[Answer]] = {}

    async def fetch(number: int) -> Answer:
        answer = Answer()
        made[number] = weakref.ref(answer)
        return answer

    async def nothing() -> None: ...

    held = asked(fetch, 1, 1)
    with link().requested(held):
        assert [link().take(held[number]) is made[number]() for number in (0, 1)] == [True, True]
        link().call(partial(link().leave, held[0]))
        link().start(nothing).result()  # what was called in the loop before it is done
        assert made[0]() is None
        assert made[1]() is not None
    link().start(nothing).result()
    assert made[1]() is None


def test_answers_that_were_read_leave_room_for_requests_ahead() -> None:
    async def fetch(number: int) -> int:
        return number

    with lowered_limit(4 << 20):
        held = asked(fetch, scratch_share())
        with link().requested(held):
            link().take(held[0])
            assert not link().has_room()
            link().read(held[0], held[0].left)
            assert link().has_room()


def test_an_answer_that_failed_makes_room_before_its_block_ends() -> None:
    """A reader waits for room, while another thread still has the failed answer requested."""

    async def fetch(number: int) -> int:
        if number == 0:
            raise ValueError("it is not there")
        return number

    held, own = asked(fetch, 1 << 20, 1), asked(fetch, (1 << 20) - 1)
    with lowered_limit(4 << 20), link().requested(held):
        with pytest.raises(ValueError, match="not there"):
            link().take(held[0])
        with link().requested(own, at_once=True), pytest.raises(ValueError, match="not there"):
            link().take(own[0])
        assert link().take(held[1]) == 1


def test_a_request_in_flight_is_not_made_again_for_the_room_of_another() -> None:
    """A reader waits for room until the answer has come, and then takes it."""
    begun: list[int] = []
    may_come = asyncio.Event()

    async def fetch(number: int) -> int:
        begun.append(number)
        if number == 0:
            await may_come.wait()
        return number

    async def nothing() -> None: ...

    (held, own) = asked(fetch, 1 << 20, 1 << 20)
    with lowered_limit(4 << 20), link().requested([held]):
        with link().requested([own], at_once=True):
            link().start(nothing).result()
            assert begun == [0]
            link().call(may_come.set)
            assert link().take(own) == 1
        assert begun == [0, 1]
        assert held.done.cancelled()
