"""Containers as processes: runc makes them, conmon stays with them, and files say what became of them."""
