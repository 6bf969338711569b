"""Train on many simulations in one HDF5 array of (trajectory, time, y, x).

Use this if a file holds many runs (The Well, PDEBench, robots): windows never cross from one
trajectory to the next, and whole trajectories are kept for validation.

    python trajectories.py well.h5 /density
"""

import sys

import keras

import oocdata as ooc

fields = ooc.open(sys.argv[1], sys.argv[2], axis=(0, 1)).astype("f4")  # or names of axes
print(fields, "in", fields.sample_shape, "trajectories and steps")

windows = fields.windows(4, 1)  # x: 4 steps, y: the step after them
train, val = windows.split(0.8, 0.2)  # whole trajectories
loader = train.batches(16, shuffle=True, seed=7)

x = keras.Input((4, *fields.element))
frames = keras.layers.Permute((2, 3, 1))(x)  # steps as channels
hidden = keras.layers.Conv2D(16, 3, padding="same", activation="relu")(frames)
change = keras.layers.Conv2D(1, 3, padding="same")(hidden)
model = keras.Model(x, x[:, -1:] + keras.layers.Permute((3, 1, 2))(change))
model.compile("adam", "mse")
model.fit(
    loader.to_tf(), validation_data=val.batches(16).to_tf(), epochs=2, shuffle=False, verbose=2
)
