"""The command line of Virtpod. Every command imports what it needs when it runs: `virtctl --help` is instant."""
