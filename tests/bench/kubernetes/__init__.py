"""The rows of our baseline on a real cluster, each beside its floor, from one run (`make bench-cluster`)."""
