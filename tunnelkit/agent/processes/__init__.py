"""The processes that the agent starts or that connect to it."""
