"""The agent's links: its socket, the bridge to it, and the reverse connection out of a job."""
