"""Views of commands about any job of the user."""
