"""`virtctl explain`: gather facts, decide purely where the machine stands and why, print."""
