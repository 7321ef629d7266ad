"""The session of one `tk up`: its daemon, its states, its control socket."""
