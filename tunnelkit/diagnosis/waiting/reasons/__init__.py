"""The parts of `by_reason`: limits, dependencies, holds and begin times."""
