"""Read objects in stores and behind HTTP, by byte range."""
