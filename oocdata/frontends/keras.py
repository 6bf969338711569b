"""Keras: a `keras.utils.PyDataset` over a loader, for any backend."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from oocdata.datasets.spec import Batch
from oocdata.errors import MissingDependencyError
from oocdata.frontends.originals import install, keep_original

try:
    import keras
except ImportError as error:
    raise MissingDependencyError(
        "`to_keras` needs Keras, which can't be imported here. Install it: pip install keras."
    ) from error

if TYPE_CHECKING:
    from oocdata.loader import Loader

__all__ = ["Batches", "to_keras"]


class Batches(keras.utils.PyDataset):  # type: ignore[misc]  # Keras has no types
    """A loader's batches by step; Keras says when an epoch ends."""

    def __init__(self, loader: Loader) -> None:
        super().__init__()
        self.loader = loader
        self.epoch = 0

    def __len__(self) -> int:
        return len(self.loader)

    def __getitem__(self, step: int) -> Batch:
        """Read the batch of a step of the current epoch."""
        try:
            return self.loader.batch(step, self.epoch)
        except BaseException as error:
            keep_original(
                error, id(self)
            )  # on TensorFlow, Keras reads this through a generator in a graph
            raise

    def on_epoch_end(self) -> None:
        """Go on to the next epoch's order; called by Keras."""
        self.epoch += 1


def to_keras(loader: Loader) -> Any:
    """Return a ``keras.utils.PyDataset`` of a loader's batches; see `oocdata.Loader.to_keras`."""
    if keras.backend.backend() == "tensorflow":
        install()
    return Batches(loader)
