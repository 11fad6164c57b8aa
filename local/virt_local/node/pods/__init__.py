"""Pods over their whole life: what to do next (pure), what to report (pure), and the thin part that does it."""
