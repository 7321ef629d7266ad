"""Commands that work on the node."""
