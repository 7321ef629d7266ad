"""`tk logs`: a job's log, its last error, one rank's lines."""
