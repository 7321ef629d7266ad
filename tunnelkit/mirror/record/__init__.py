"""Record of the files that tk has sent: the manifest on the laptop."""
