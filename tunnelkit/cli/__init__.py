"""The command line: `tk` and its commands."""
