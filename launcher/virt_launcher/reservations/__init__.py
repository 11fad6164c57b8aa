"""The node's helper for SCSI persistent reservations, which machines ask by a socket."""
