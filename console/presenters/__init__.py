"""Turn database rows into frozen values for pages, and those into fragments."""
