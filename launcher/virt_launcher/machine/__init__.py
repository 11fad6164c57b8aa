"""The one machine: started, watched, changed, ended."""
