"""The debug loop as the laptop sees it: command, adapter, session port, editor files."""
