"""What commands show, and the work of those that start without typer."""
