"""Admission webhooks: which ones a write concerns, how they are called, what their answer does."""
