"""Commands about jobs: why one waits, is slow or failed."""
