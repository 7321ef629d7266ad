"""The backends: how a cluster is reached, and how an allocation is made there."""
