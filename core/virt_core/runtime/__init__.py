"""What every process needs around its work: threads, logs, time, health, files and processes. Light to import."""
