"""File events: inotify or watchdog, coalesced; and a scan for the changes they miss."""
