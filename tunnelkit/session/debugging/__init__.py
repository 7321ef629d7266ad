"""The session's debug loops."""
