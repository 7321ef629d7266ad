"""`tk submit` and `tk keep`: a user's own batch script, kept if it fails."""
