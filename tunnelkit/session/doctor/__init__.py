"""`tk doctor`: one table of checks from the laptop to the node, run side by side."""
