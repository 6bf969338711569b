"""Train on random crops of large images in Zarr; only the chunks of a crop are read.

Use this for slides, plates or maps whose images are too large for a batch. The places of the crops
are a pure function of (seed, epoch, image): each epoch has different crops, and a run can be
repeated.

    python patches.py plate.zarr
"""

import sys

import keras
import numpy as np

import oocdata as ooc

images = ooc.open(sys.argv[1])  # (images, y, x)
crops = images.patches((32, 32), per_row=8)  # 8 of each image


def noisy(clean, rng):
    """Return noisy and clean crops; `rng` depends only on (seed, epoch, step)."""
    clean = np.float32(clean)[..., np.newaxis] / 255
    return clean + rng.normal(0, 0.1, clean.shape).astype("f4"), clean


loader = crops.map(noisy, rng=True).batches(64, shuffle=True, seed=7)
print(loader.explain())

model = keras.Sequential(
    [
        keras.Input((32, 32, 1)),
        keras.layers.Conv2D(16, 3, padding="same", activation="relu"),
        keras.layers.Conv2D(1, 3, padding="same"),
    ]
)
model.compile("adam", "mse")
model.fit(loader.to_tf(), epochs=2, shuffle=False, verbose=2)
