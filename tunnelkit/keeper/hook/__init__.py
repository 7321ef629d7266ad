"""Runs in the user's own Python, in a job of `tk submit --post-mortem`."""
