"""Shell completion: what TAB offers."""
