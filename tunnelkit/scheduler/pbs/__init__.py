"""OpenPBS, PBS Pro and Torque."""
