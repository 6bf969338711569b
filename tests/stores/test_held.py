"""Answers that are held: until they are dropped, and no longer."""

from __future__ import annotations

import weakref

from oocdata.stores.held import Held
from oocdata.stores.link import link


class Answer:
    """Something whose end can be seen."""


def test_an_answer_is_gone_once_it_is_dropped_and_the_others_stay() -> None:
    made: dict[int, weakref.ref[Answer]] = {}

    async def fetch(number: int) -> Answer:
        answer = Answer()
        made[number] = weakref.ref(answer)
        return answer

    async def nothing() -> None: ...

    held = Held([1, 1], fetch)
    held.begin()
    assert [held.take(number) is made[number]() for number in (0, 1)] == [True, True]
    held.drop(0)
    link().start(nothing).result()  # what was called in the loop before it is done
    assert made[0]() is None
    assert made[1]() is not None
    held.close()
    link().start(nothing).result()
    assert made[1]() is None
