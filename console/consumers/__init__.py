"""WebSockets: check permission, then send bytes or fragments of pages. These modules make no decisions about jobs."""
