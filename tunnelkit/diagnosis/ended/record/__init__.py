"""The records of an ended job: the end of its script, and the steps that failed."""
