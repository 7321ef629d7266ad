"""The agents that a loop runs on: one, or one for each of several nodes."""
