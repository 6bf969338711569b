"""Pictures: each row is one, decoded as a whole, of a file or of a row of bytes."""

from __future__ import annotations

from oocdata.formats.pictures.files import open_pictures
from oocdata.formats.pictures.options import Pictures
from oocdata.formats.pictures.reader import open_picture_rows

__all__ = ["Pictures", "open_picture_rows", "open_pictures"]
