"""The one kind of failure that ends a build: its text is all that the user sees."""

from __future__ import annotations


class ImageError(Exception):
    """What could not be done, why, and what would help."""
