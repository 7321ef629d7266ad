"""The mirror: keeps a directory on the cluster equal to one on the laptop, one way."""
