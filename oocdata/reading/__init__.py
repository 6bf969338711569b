"""Read a loader's steps ahead, in threads or in worker processes, for every front-end."""
