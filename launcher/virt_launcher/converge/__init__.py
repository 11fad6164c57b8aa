"""A running machine that is to become another one: what differs, what of it can be changed live, and the change itself.

Imported only when a running machine is synced: every launcher would pay for it otherwise.
"""
