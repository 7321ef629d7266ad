"""The connection to the login host, and the rules for prompting for a secret."""
