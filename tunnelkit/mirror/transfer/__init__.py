"""Transfers in bulk, both ways: rsync, or tar over the link."""
