"""Work done in the decoding threads: all of it, once, and its errors told."""

from __future__ import annotations

import threading
from collections import Counter
from contextlib import suppress
from functools import partial

import pytest

from oocdata.engines.decoding import decodes_already, in_decoding_thread, run_tasks, scratch
from oocdata.threads import cores


def test_each_task_is_done_once_though_some_fail() -> None:
    done: Counter[int] = Counter()

    def task(number: int) -> None:
        done[number] += 1
        if number % 10 == 3:
            raise ValueError(number)

    with pytest.raises(ValueError, match="3"):
        run_tasks([partial(task, number) for number in range(100)])
    assert done == Counter(range(100))


@pytest.mark.skipif(cores() < 2, reason="one processor helps nobody")
@pytest.mark.parametrize("within", [False, True])
def test_tasks_are_done_at_once_and_waited_for(within: bool) -> None:
    """Also by a decoding thread, whose scratch memory is counted for those who help it."""
    met, ended, nested = threading.Barrier(2), [], []

    def task() -> None:
        with suppress(threading.BrokenBarrierError):  # nobody else came
            met.wait(20)
        nested.append(decodes_already())
        ended.append(threading.get_ident())

    def work() -> None:
        with scratch(8):
            run_tasks([task, task])

    if within:
        in_decoding_thread(work)
    else:
        run_tasks([task, task])
    assert len(ended) == len(set(ended)) == 2
    assert nested == [within] * 2
    assert not decodes_already()
