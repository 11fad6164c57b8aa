"""VMIs: from the stored object to the hand-over to a node, and the removal after the end."""
