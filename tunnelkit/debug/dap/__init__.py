"""DAP sessions between an editor and an adapter: read along, and amended."""
