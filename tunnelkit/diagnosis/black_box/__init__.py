"""The black box of a job: its file as evidence."""
