"""Picture files: each row is a picture, decoded as a whole."""

from __future__ import annotations

from oocdata.formats.pictures.decoding import picture_format
from oocdata.formats.pictures.files import PictureFiles, open_pictures
from oocdata.formats.pictures.options import Pictures

__all__ = ["PictureFiles", "Pictures", "open_pictures", "picture_format"]
