"""Real hosts, real services and the real product for tests, and the invariants that judge a run."""
