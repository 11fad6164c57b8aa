"""`virtctl ssh` and `virtctl scp`: the local programs, with `virtctl port-forward` as their way to the guest."""
