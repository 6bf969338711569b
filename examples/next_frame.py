"""Train a model to predict the next frame of an array that does not fit in memory.

Use this if a file holds consecutive frames, from a simulation, a film or a microscope.

    python next_frame.py ds.npy            # also .h5, .zarr, .nc; any shape of frame
"""

import sys

import keras

import oocdata as ooc

frames = ooc.open(sys.argv[1]).astype("f4")  # reads the header, no data
train, val, test = frames.split(0.6, 0.2, 0.2)  # by range: no frame is shared
scaling = ooc.stats(train).standardize  # mean 0 and deviation 1, from the training part only


def batches(part, **order):
    """Return pairs (frame i, frame i + 1) in batches."""
    return part.next_frame().map(scaling).batches(32, **order)


loader = batches(train, shuffle=True, seed=7)
print(loader.explain())

x = keras.Input(frames.shape[1:])
hidden = keras.layers.Dense(64, activation="relu")(keras.layers.Flatten()(x))
change = keras.layers.Dense(frames[0].size, kernel_initializer="zeros")(hidden)
model = keras.Model(x, x + keras.layers.Reshape(frames.shape[1:])(change))
model.compile("adam", "mse")
print("copying the last frame:", model.evaluate(batches(test).to_tf(), verbose=0))

model.fit(loader.to_tf(), validation_data=batches(val).to_tf(), epochs=3, shuffle=False, verbose=2)
print("the model:", model.evaluate(batches(test).to_tf(), verbose=0))
