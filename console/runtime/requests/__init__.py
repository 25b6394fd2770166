"""Requests of HTTP: from the event loop into a thread, through the middleware, and back."""
