"""What goes when its owner goes: dependents by owner references, and everything in a deleted namespace.

It runs inside the API server, beside the store: there every change of every kind is known at once, without a watch
for each.
"""
