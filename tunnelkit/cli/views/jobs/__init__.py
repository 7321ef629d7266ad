"""What commands about any job of the user show."""
