"""The ranks at one time, as text and as JSON."""
