"""The cases of `scripts/why-cases` that are tables."""
