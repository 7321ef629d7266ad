"""Evidence as frozen values: schedulers parse into these, rules read them."""
