"""The node agent: runs the Pods that are bound to its node, with runc, conmon and the CNI plugins."""
