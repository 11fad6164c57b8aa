"""`virtctl vmexport`: disks that leave the cluster."""
