"""Runs on the login host: looks at what a batch script needs, and runs none of it."""
