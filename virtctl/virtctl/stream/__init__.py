"""Byte streams to a guest: one websocket each, joined with a terminal, a socket or standard input and output."""
