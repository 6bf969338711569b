"""Define `Pictures`, the options for resizing and converting pictures."""

from __future__ import annotations

import operator
from dataclasses import dataclass

from oocdata.errors import ArgumentError
from oocdata.index import as_flag

FILTERS = ("nearest", "box", "bilinear", "bicubic", "lanczos")
"""Names of Pillow's filters."""

_CHANNELS = (1, 3, 4)


@dataclass(frozen=True)
class Pictures:
    """Options that make pictures of different shapes rows of one shape, for `oocdata.open`.

    Pillow then decodes and resizes pictures: its filters weigh every source pixel, as
    ``tf.image.resize`` does with ``antialias=True``. By default that function does not, nor does
    ``keras.utils.image_dataset_from_directory``.

    Parameters
    ----------
    size : (int, int), optional
        Height and width of the rows; by default those of the pictures.
    crop : bool
        Keep proportions: resize the largest central window with the aspect ratio of `size`, as
        ``crop_to_aspect_ratio`` of Keras. By default, the whole picture is stretched.
    filter : {"bilinear", "nearest", "box", "bicubic", "lanczos"}
        Filter for resizing; "box" is the mean of the area.
    channels : {1, 3, 4}, optional
        1: grey, of shape (height, width); 3: colours; 4: colours and opacity. By default as stored.
    indices : bool
        Deliver the palette indices of files with a palette, of shape (height, width): class numbers
        in mask pictures, such as those of Pascal VOC. With `size`, `filter` must be "nearest".

    Raises
    ------
    oocdata.errors.ArgumentError
        If an option breaks its rule, or options contradict each other.

    Examples
    --------
    >>> Pictures(size=(180, 240), crop=True, channels=3)
    Pictures(size=(180, 240), crop=True, filter='bilinear', channels=3, indices=False)
    >>> Pictures(size=(180, 240), filter="cubic")
    Traceback (most recent call last):
    ...
    oocdata.errors.ArgumentError: `filter` must be one of nearest, box, bilinear, bicubic, lanczos;
    got 'cubic'.
    """

    size: tuple[int, int] | None = None
    crop: bool = False
    filter: str = "bilinear"
    channels: int | None = None
    indices: bool = False

    def __post_init__(self) -> None:
        as_flag("crop", self.crop)
        as_flag("indices", self.indices)
        if self.size is not None:
            object.__setattr__(self, "size", _height_and_width(self.size))
        if not isinstance(self.filter, str) or self.filter not in FILTERS:
            raise ArgumentError(
                f"`filter` must be one of {', '.join(FILTERS)}; got {self.filter!r}."
            )
        if getattr(self.channels, "ndim", 0) or self.channels not in (None, *_CHANNELS):
            raise ArgumentError(
                f"`channels` must be 1 (grey), 3 (colours) or 4 (and opacity); got "
                f"{self.channels!r}."
            )
        if self.crop and self.size is None:
            raise ArgumentError("`crop` must be given with `size`; got `size` None.")
        if self.indices and self.channels is not None:
            raise ArgumentError(
                f"`channels` must be left out with `indices`, which are no colours; got "
                f"{self.channels}."
            )
        if self.indices and self.size is not None and self.filter != "nearest":
            raise ArgumentError(
                f"`filter` must be 'nearest' with `indices`, of which no mean can be taken; got "
                f"{self.filter!r}."
            )


def _height_and_width(size: object) -> tuple[int, int]:
    try:
        height, width = (operator.index(one) for one in size)  # type: ignore[attr-defined]
    except (TypeError, ValueError):
        height = width = 0
    if height < 1 or width < 1:
        raise ArgumentError(f"`size` must be (height, width), each at least 1; got {size!r}.")
    return height, width
