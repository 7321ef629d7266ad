"""The program's last words: marks of faults, tracebacks, and which rank said what."""
