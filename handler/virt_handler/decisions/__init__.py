"""Pure: what the node knows goes in, what is to be done or told comes out."""
