"""Probes: asking containers whether they have started, live and are ready."""
