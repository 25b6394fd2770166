"""REST: Vertex AI's resources under /v1/, our own under /api/v1/. Views translate; the services of jobs/ act."""
