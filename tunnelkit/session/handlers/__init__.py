"""Handlers of the calls that commands make over the control socket."""
