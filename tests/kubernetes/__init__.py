"""What only a real cluster can show. `make test-cluster` runs these, and the end-to-end tests, on it."""
