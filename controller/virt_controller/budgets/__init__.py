"""Disruption budgets for machines that must not be evicted."""
