"""The pure floor: what a job is and what should happen to it. No Django, no clock, no dice, no I/O."""
