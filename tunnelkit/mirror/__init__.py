"""The mirror: one way, laptop to cluster; and sshfs for those who want no copy."""
