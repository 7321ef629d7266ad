"""One pass of the mirror: changes are decided on, checked and sent."""
