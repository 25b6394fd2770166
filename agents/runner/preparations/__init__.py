"""Preparations: what this host must have before runs that need it may start (an image, an unpacked tree)."""
