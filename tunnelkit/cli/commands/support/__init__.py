"""Commands that explain, check and configure."""
