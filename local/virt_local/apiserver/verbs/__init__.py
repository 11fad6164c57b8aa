"""What can be done to objects. Nothing here knows HTTP except watches and streams."""
