"""The remote root: its owner, its checks, and edits that were made there."""
