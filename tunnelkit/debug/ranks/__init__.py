"""Pure parts of the rank views: who is selected, where each rank is, who has not arrived."""
