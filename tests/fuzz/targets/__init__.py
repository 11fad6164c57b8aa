"""One file for each door: how its input is made, and what it must answer."""
