"""The allocation of a session: its job, its nodes, and the streams to their agents."""
