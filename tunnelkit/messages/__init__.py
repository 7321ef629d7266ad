"""Messages between session and agent, as types. The agent imports them for type checking only."""
