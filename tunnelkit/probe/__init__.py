"""Runs in a job beside the program, without the agent: samples it, and keeps a black box."""
