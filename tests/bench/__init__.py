"""`make bench`: figures as ratios, measured side by side in one run. Not tests: machines are noisy."""
