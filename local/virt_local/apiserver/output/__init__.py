"""Objects on their way out: plain, as metadata only, or as a table."""
