"""What this node is and offers: its labels, its heartbeat, its capability cache."""
