"""The VM controller: a machine that is kept, and the VMI that it runs as from time to time."""
