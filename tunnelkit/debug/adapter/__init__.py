"""debugpy adapters on the laptop."""
