"""The door to the Kubernetes API: client, informers, work queues, leader election, events. Not for the launcher."""
