"""Snapshots of VMs: the VM is held still, its volumes are saved by the cluster's storage, its spec is kept beside."""
