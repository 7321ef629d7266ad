"""The commands of `tk`, in folders as `tk --help` groups them; each adds itself by `register`."""
