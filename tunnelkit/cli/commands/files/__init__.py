"""Commands that move the project's files."""
