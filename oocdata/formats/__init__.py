"""Formats: what lies where. Each turns a file or an object into a source of one of the engines."""
