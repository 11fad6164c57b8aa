"""A Pod on this node: its files, its cgroup, its launcher, its network."""
