"""What commands may ask of a session over its control socket."""
