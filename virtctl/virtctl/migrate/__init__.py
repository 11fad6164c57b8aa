"""`virtctl migrate` and `migrate-cancel`: begin a move, look on, give it up."""
