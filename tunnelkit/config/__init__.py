"""Configuration: tunnelkit.toml, cluster profiles, environment and flags.

`load.load` reads them all; every value knows where it came from.
"""
