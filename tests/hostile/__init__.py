"""Hostile parts that every feature must meet: login host, node, repository, user, web page."""
