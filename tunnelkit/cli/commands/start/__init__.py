"""Commands that set up, start and end a session."""
