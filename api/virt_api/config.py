"""What the cluster decides for all VMIs. The values and where they come from live in `virt_core.kube.clusterconfig`."""

from __future__ import annotations

from virt_core.kube.configvalues import ClusterConfig, MigrationLimits, host_architecture

__all__ = ["ClusterConfig", "MigrationLimits", "host_architecture"]
