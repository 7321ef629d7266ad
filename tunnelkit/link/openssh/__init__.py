"""The OpenSSH backend: the user's own ssh, and one ControlMaster for each host."""
