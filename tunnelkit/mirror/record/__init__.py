"""What tk has sent: the manifest on the laptop."""
