"""The loop of virt-handler: sessions, records, and what wakes it."""
