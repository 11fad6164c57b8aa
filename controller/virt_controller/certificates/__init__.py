"""The CA and the certificates of our own programs: made, rotated and handed out by the leader."""
