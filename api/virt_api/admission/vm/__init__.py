"""Admission of VMs: matchers, defaults that are kept, and the rules."""
