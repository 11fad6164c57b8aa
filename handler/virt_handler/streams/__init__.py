"""Bytes between virt-api and a guest."""
