"""Helpers that all levels of tests share: `from framework.waiting import eventually`."""
