"""Running machines get a new launcher."""
