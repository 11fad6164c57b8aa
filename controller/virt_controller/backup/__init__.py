"""VirtualMachineBackups: the disks of a running machine, or what has changed of them, pushed into a claim."""
