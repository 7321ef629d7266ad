"""Rules about jobs that wait, are slow or failed: evidence in, verdicts out. No I/O, no clock."""
