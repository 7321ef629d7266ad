"""Runs on the compute node, inside the job. Standard library, mux and wire only; Python 3.8+."""
