"""Services: which Pods answer for them, how packets get there, and under which names."""
