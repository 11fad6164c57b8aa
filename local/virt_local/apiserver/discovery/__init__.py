"""What the server tells about itself: groups, resources, versions and schemas."""
