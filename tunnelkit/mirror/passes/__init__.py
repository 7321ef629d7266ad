"""One pass of the mirror: compare, check and send changes."""
