"""``python -m benchmarks.pictures``: a folder of JPEGs, ours beside Keras, tf.data and PyTorch.

Files of 500 x 375 are written once. Each way has a process of its own; they take turns, an epoch
each. All bytes lie in the page cache. Ours may keep 64 MB decoded, so that it decodes nearly all of
them in each epoch.
"""

from __future__ import annotations

import importlib.util
import io
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.taking_turns import Batches, measured, parser, passes, serve, table
from oocdata.tools.demo.data import workspace

__all__ = ["WAYS", "main", "write"]

_SHAPE = (375, 500, 3)
_BATCH, _CLASSES, _DRAWN = 32, 10, 60


def write(folder: Path, count: int) -> None:
    """Write so many JPEGs of about 60 KB into folders by class; some are the same."""
    from PIL import Image

    random, drawn = np.random.default_rng(0), []
    for _ in range(min(count, _DRAWN)):
        whole = np.zeros(_SHAPE)
        for octave in range(8):  # noise of all sizes, as photographs have it
            small = random.normal(size=(3 << octave, 4 << octave, 3)) * 100 / 1.7**octave
            for channel in range(3):
                image = Image.fromarray(small[..., channel].astype("f4"))
                whole[..., channel] += image.resize((500, 375), Image.Resampling.BICUBIC)
        file = io.BytesIO()
        pixels = np.clip(whole + 128, 0, 255).astype(np.uint8)
        Image.fromarray(pixels).save(file, "JPEG", quality=88)
        drawn.append(file.getvalue())
    for number in range(count):
        path = folder / f"class_{number % _CLASSES}" / f"{number}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(drawn[number % len(drawn)])


def _ours(folder: Path, size: tuple[int, int] | None, *, to_tf: bool) -> Batches:
    import oocdata as ooc
    from oocdata.engines.cache import cache

    cache.budget = lambda: 64 << 20
    wanted = None if size is None else ooc.Pictures(size=size)
    images = ooc.open(f"{folder}/*/*.jpg", pictures=wanted)
    loader = ooc.zip(images, ooc.folder_labels(images)).batches(_BATCH, shuffle=True)
    return passes(loader, to_tf=to_tf)


def _keras(folder: Path, size: tuple[int, int] | None) -> Batches:
    import keras

    dataset = keras.utils.image_dataset_from_directory(
        folder, image_size=size or _SHAPE[:2], batch_size=_BATCH, seed=1, verbose=0
    )
    return lambda: dataset.prefetch(2)


def _tf_data(folder: Path, size: tuple[int, int] | None) -> Batches:
    import tensorflow as tf

    def decoded(path: Any) -> tuple[Any, Any]:
        image = tf.io.decode_jpeg(tf.io.read_file(path), channels=3)
        if size is not None:
            image = tf.cast(tf.image.resize(image, size, antialias=True), tf.uint8)
        return image, tf.strings.length(path)

    paths = [str(path) for path in sorted(folder.glob("*/*.jpg"))]
    dataset = tf.data.Dataset.from_tensor_slices(paths).shuffle(len(paths))
    dataset = dataset.map(decoded, num_parallel_calls=tf.data.AUTOTUNE).batch(_BATCH).prefetch(2)
    return lambda: dataset


def _torch(folder: Path, size: tuple[int, int] | None) -> Batches:
    import torch
    from PIL import Image

    class Files(torch.utils.data.Dataset):  # type: ignore[type-arg,name-defined,misc]
        paths = sorted(folder.glob("*/*.jpg"))

        def __len__(self) -> int:
            return len(self.paths)

        def __getitem__(self, at: int) -> tuple[Any, int]:
            with Image.open(self.paths[at]) as image:
                if size is not None:
                    image = image.resize(size[::-1], Image.Resampling.BILINEAR)
                return np.array(image.convert("RGB")), int(self.paths[at].parent.name[-1])

    loader = torch.utils.data.DataLoader(Files(), batch_size=_BATCH, shuffle=True, num_workers=2)
    return lambda: loader


WAYS: dict[str, Callable[[Path, tuple[int, int] | None], Batches]] = {
    "oocdata NumPy": partial(_ours, to_tf=False),
    "oocdata to_tf": partial(_ours, to_tf=True),
    "Keras image_dataset_from_directory": _keras,
    "tf.data, read and decode": _tf_data,
    "PyTorch DataLoader, Pillow, 2 workers": _torch,
}


def main(arguments: list[str] | None = None) -> int:
    """Run what the command line asks for; return 1 if a way does not deliver every picture."""
    line = parser("benchmarks.pictures", __doc__, "pictures", 10_000)
    line.add_argument("--size", type=int, nargs=2, metavar=("H", "W"), help="resize to this")
    options = line.parse_args(arguments)
    size = None if options.size is None else (options.size[0], options.size[1])
    if options.way:
        serve(WAYS[options.way](options.folder, size), lambda batch: len(batch[0]))
        return 0
    names = [name for name in WAYS if "PyTorch" not in name or importlib.util.find_spec("torch")]
    with workspace() as own:
        folder = options.folder or own
        if not any(folder.glob("*/*.jpg")):
            write(folder, options.count)
        count = len(list(folder.glob("*/*.jpg")))
        given = ["--folder", str(folder), *(["--size", *map(str, size)] if size else [])]
        found = measured("benchmarks.pictures", names, given, options.rounds)
    what = "as stored" if size is None else f"resized to {size[0]} x {size[1]}"
    print(f"{count:,} JPEGs of 500 x 375, {what}; median of {options.rounds}\n")
    return table(found, "picture", lambda _: "oocdata to_tf", count)


if __name__ == "__main__":
    raise SystemExit(main())
