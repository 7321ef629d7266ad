"""Sockets, records and directories of a session on the laptop, and their clients."""
