"""Handlers for batch jobs of the user's own."""
