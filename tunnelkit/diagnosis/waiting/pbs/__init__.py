"""What OpenPBS says of a job that waits, by its comment, holds and nodes."""
