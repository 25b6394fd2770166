"""WebSockets: authorise, then move bytes or fragments. Nothing is decided here."""
