"""Resume a training run that was killed, at the step of its last save.

Use this to train for hours on machines that may be taken away: run the same command again.

    python resume.py ds.npy run
    python resume.py ds.npy run            # resumes a killed run; does nothing after the end
"""

import signal
import sys

import keras

import oocdata as ooc

path, folder = sys.argv[1:3]
keras.utils.set_random_seed(7)
frames = ooc.open(path).astype("f4")
loader = frames.next_frame().batches(32, shuffle=True, seed=7)

model = keras.Sequential(
    [
        keras.Input(frames.shape[1:]),
        keras.layers.Flatten(),
        keras.layers.Dense(64, activation="relu"),
        keras.layers.Dense(frames[0].size),
        keras.layers.Reshape(frames.shape[1:]),
    ]
)
model.compile("adam", "mse")

# Model, optimizer and position are one file, replaced atomically every 50 steps.
resume = ooc.Resume(folder, loader, every=50)
signal.signal(signal.SIGTERM, resume.stop)  # save before the machine is taken away
print("begins at (epoch, step)", resume.start)
model.fit(resume.to_tf(), epochs=3, callbacks=[resume], shuffle=False, verbose=2)
