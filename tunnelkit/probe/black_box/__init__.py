"""Keeps a record of a job beside it, which outlives job, node and accounting."""
