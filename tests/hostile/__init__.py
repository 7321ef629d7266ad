"""Hostile parts: login host, node, repository, local user, web page. Every feature must meet them."""
