"""Questions about one job of PBS: one script, and the parsers of its answers."""
