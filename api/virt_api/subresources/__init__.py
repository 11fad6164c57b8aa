"""The aggregated API subresources.kubevirt.io. Its table is `routes`."""
