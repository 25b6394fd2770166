"""The verbs of the client. A module has for each of its verbs a function of its name, and an entry in ARGUMENTS."""
