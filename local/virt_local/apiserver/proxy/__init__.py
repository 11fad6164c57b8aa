"""Requests that another server answers: aggregated APIs, and the nodes' streams into containers."""
