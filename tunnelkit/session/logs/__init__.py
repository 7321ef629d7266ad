"""`tk logs JOB`: a job's own log, read over the link and resumed after cuts."""
