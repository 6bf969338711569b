"""A loader's steps, read ahead: in threads or in worker processes, for every front-end alike."""
