"""The hostile parts as fixtures. Each stands in a module of its own beside this file."""
