"""automation/v1: VMs and VMIs over gRPC, for programs that do not want to speak the Kubernetes API."""
