"""Floor 1: where the bytes are. The only place that touches storage."""
