"""The paramiko backend: ssh in this process."""
