"""Metrics that the programs of runs report: what they write is read here, and journaled for the console."""
