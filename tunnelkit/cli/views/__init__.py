"""Output of commands, and the work of those that start without typer."""
