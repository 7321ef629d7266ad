"""`scripts/bench`: tk side by side with plain OpenSSH and stock debugpy, on the lab."""
