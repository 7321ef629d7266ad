"""The scheduler job that holds the allocation."""
