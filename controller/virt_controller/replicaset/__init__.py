"""The replica set controller: a number of equal VMIs."""
