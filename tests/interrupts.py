"""A script: Ctrl-C again and again while rows are read, and what is read afterwards.

Usage: ``interrupts.py FILE TIMES``; prints how many batches were wrong, and of how many.
"""

from __future__ import annotations

import os
import signal
import sys
import threading

import numpy as np

import oocdata as ooc

ROWS = np.arange(3000 * 512, dtype="i4").reshape(3000, 512)


def main(path: str, times: int) -> None:
    """Read rows of a file that holds `ROWS`, interrupted `times` times."""
    ooc.set_memory(2 << 20)
    view = ooc.open(path)
    inside, over = False, threading.Event()

    def interrupt(*_: object) -> None:
        if inside:
            raise KeyboardInterrupt

    def press() -> None:
        delays = np.random.default_rng(0)
        while not over.wait(0.001 + delays.random() * 0.005):
            os.kill(os.getpid(), signal.SIGINT)

    signal.signal(signal.SIGINT, interrupt)
    presses = threading.Thread(target=press)
    presses.start()
    choice, pressed, wrong, count = np.random.default_rng(1), 0, 0, 0
    try:
        while pressed < times:
            rows = choice.integers(0, len(ROWS), 64)
            try:
                try:
                    inside = True
                    batch = view.take(rows)
                finally:
                    inside = False
            except KeyboardInterrupt:
                pressed += 1
            else:
                count += 1
                wrong += not np.array_equal(batch, ROWS[rows])
    finally:
        over.set()
        presses.join()
    loader = view.batches(32, shuffle=True)
    for step, batch in enumerate(loader):
        count += 1
        wrong += not np.array_equal(batch, ROWS[loader.positions(step)])
    print(wrong, count)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
