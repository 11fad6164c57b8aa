"""virt-netsetup: wires a guest to the network of its Pod.

A program of its own: it enters the Pod's network namespace with setns, which a process with threads must not do, and it
keeps the code that needs CAP_NET_ADMIN small. JSON plan in, JSON report out; once by hand, or for each Pod of a node in
a child of a process that stays.
"""
