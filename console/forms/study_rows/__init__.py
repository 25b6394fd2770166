"""Rows of the new-study form: parameters, metrics, and parameters from a pasted text."""
