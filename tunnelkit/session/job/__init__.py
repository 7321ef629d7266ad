"""The job that holds the allocation."""
