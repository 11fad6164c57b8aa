"""VirtualMachineClones: a snapshot of the source, a restore of it under another name, and both gone in the end."""
