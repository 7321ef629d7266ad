"""Runs in a user's job as the parent of the user's script, and keeps the job if it fails."""
