"""Runs in a pod: finds a place for the agent, and brings it there."""
