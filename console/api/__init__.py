"""REST: Vertex AI's resources under /v1/, our own words under /api/v1/. Shapes only; `jobs.services` acts."""
