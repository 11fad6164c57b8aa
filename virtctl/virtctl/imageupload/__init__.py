"""`virtctl image-upload`: a disk of yours into a claim."""
