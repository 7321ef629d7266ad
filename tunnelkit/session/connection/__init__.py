"""The connection to the login host, and when it may ask for a secret."""
