"""Restart loops on the node: debuggees started, their connections kept, ranks and injection."""
