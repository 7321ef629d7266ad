"""The ways to hold a run to its job's limits, from a container to watching it."""
