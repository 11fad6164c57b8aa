"""Probes that ask the guest itself: `virt-probe` in the launcher's container, and the launcher's answers to it."""
