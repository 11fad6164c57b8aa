"""passt, which carries a guest's traffic by sockets of the Pod: how it is started inside the launcher's container."""
