"""The node's host devices as resources of Kubernetes: virt-handler is the kubelet's device plugin for each of them."""
