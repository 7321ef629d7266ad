"""tunnelkit: debug on a cluster as if it were your laptop."""

__version__ = "0.1.0"
