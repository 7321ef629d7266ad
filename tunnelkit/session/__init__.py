"""The life of one `tk up`: its daemon, its states, its control socket."""
