"""Floor 5: what people run on a file."""
