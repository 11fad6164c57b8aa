"""Admission of VMIs: read the document, fill in defaults, check the rules, answer."""
