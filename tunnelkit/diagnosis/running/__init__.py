"""Causes that hold a running job back: rules over a window of samples."""
