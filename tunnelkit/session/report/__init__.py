"""`tk bugreport`: files that help to find a fault, without names and secrets."""
