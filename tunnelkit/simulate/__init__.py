"""A batch script, run on this computer under its job's limits."""
