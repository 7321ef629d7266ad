"""The channel to the agent that receives the files."""
