"""`virtctl console`: a terminal on the guest's first serial port."""
