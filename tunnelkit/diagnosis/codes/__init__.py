"""Every verdict's code: stable names, what they mean, how they are found, what to do."""
