"""Why a job waits, is slow or failed: evidence goes in, verdicts come out. No I/O, no clock."""
