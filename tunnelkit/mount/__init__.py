"""The remote directory mounted on the laptop by sshfs, nothing copied."""
