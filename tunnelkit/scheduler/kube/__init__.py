"""Kubernetes as a scheduler: pods made and adopted, their states in words. No I/O."""
