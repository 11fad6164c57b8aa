"""The launcher as process 1 of its container: from start to end."""
