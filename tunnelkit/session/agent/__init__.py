"""Agents of a session: installation, routes to them, and their clients."""
