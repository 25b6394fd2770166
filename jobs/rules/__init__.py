"""The pure rules: what a job is and what should happen to it. No Django, no clock, no randomness, no I/O."""
