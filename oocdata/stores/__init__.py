"""Bytes that lie in no local file: objects in stores and behind HTTP, read by byte range."""
