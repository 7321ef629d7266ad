"""Code that the session sends to a debuggee as text; it is not in the agent's zip."""
