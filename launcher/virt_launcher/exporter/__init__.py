"""`virt-exporter`: a claim's content for those who have the token, in a Pod of its own."""
