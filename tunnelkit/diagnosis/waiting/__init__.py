"""Reasons for which a job waits: rules over the job and the cluster around it."""
