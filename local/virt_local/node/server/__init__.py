"""The agent's own HTTPS endpoint: logs, exec, attach and port-forward, for the API server only."""
