"""Questions about one job of Slurm: one script, and the parsers of its answers."""
