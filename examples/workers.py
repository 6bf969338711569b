"""Run a slow Python function on every batch in worker processes, in parallel with the model.

Use this for augmentation in Python, since one process can run Python code on only one core. The
contents of a batch do not depend on the number of workers; batches return through shared memory.

    python workers.py ds.npy 2
"""

import sys
from time import perf_counter

import numpy as np

import oocdata as ooc


def rainy(frames, rng):
    """Draw the traces of rain drops point by point, which is slow in Python."""
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
