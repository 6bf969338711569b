"""Run a slow Python function on every batch in worker processes, beside the model.

For whoever augments in Python: one process can run Python code on one core only. What a batch holds
does not depend on the number of workers; batches come back through shared memory.

    python workers.py ds.npy 2
"""

import sys
from time import perf_counter

import numpy as np

import oocdata as ooc


def rainy(frames, rng):
    """Draw traces of drops, point by point: slow, as Python is."""
    wet = np.float32(frames)
    for frame in wet:
        row, column = rng.integers(0, frame.shape, 2).tolist()
        for _ in range(100):
            row, column = (row + 1) % frame.shape[0], (column + 1) % frame.shape[1]
            frame[row, column] += 1
    return wet, frames


frames = ooc.open(sys.argv[1])  # (rows, y, x)
pairs = frames.map(rainy, rng=True)
for workers in (0, int(sys.argv[2])):
    loader = pairs.batches(32, shuffle=True, seed=7, workers=workers)
    total, begun = 0.0, perf_counter()
    for x, _ in loader.to_tf():  # or model.fit(loader.to_tf())
        total += float(np.sum(x))
    seconds = perf_counter() - begun
    print(f"{workers} workers: {len(frames) / seconds:,.0f} rows/s, sum {total:.6g}")
