"""`tk bugreport`: what helps to find a fault, without names and secrets."""
