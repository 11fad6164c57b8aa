"""`virtctl vnc`: the guest's screen, in a viewer, at a local port, or as a picture."""
