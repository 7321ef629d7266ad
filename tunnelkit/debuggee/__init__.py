"""Code for the user's own interpreter on the node: Python 3.8, stdlib and debugpy only."""
