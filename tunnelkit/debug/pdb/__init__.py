"""`tk pdb`: its command line, and pdb's plain text at a port of the laptop."""
