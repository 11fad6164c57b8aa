"""libvirt's domain XML as dataclasses: each field names its place, and one codec emits and parses them all."""
