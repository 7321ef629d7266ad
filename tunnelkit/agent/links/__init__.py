"""How a session's link reaches the agent: its socket, the bridge to it, the way out of a job."""
