"""`virtctl port-forward`: local ports, or standard input and output, that lead into the guest."""
