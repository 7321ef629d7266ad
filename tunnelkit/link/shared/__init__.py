"""Parts of a link that both backends use."""
