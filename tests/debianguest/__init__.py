"""A machine with a genuine Debian in it: `make test-debian`."""
