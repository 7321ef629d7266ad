"""Read-ahead: the questions of an editor, asked before it asks them."""
