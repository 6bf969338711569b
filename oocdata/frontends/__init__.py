"""Floor 4: a Loader for a framework. Each is imported only when it is asked for."""
