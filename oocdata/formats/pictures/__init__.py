"""Open pictures as rows: files, or rows of bytes, each decoded as a whole."""

from __future__ import annotations

from oocdata.formats.pictures.files import open_pictures
from oocdata.formats.pictures.options import Pictures
from oocdata.formats.pictures.reader import open_picture_rows

__all__ = ["Pictures", "open_picture_rows", "open_pictures"]
