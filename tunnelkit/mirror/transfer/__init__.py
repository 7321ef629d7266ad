"""Bulk transfers in both directions: rsync, or tar over the link."""
