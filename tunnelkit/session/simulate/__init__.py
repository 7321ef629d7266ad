"""`tk simulate`: the check on the login host, without an allocation."""
