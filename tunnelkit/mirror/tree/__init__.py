"""The local tree: its files, the rules that leave some out, names and symlinks."""
