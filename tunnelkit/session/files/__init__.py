"""The session's mirrors and mounts."""
