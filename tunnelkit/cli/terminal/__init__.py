"""The user's terminal: output, questions, raw mode; and what every command needs."""
