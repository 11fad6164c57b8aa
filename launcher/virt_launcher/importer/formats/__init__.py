"""Formats of disk images, read as a stream: bytes of the file go in, in their order; bytes of the disk come out."""
