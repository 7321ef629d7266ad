"""Schedulers: adapters build argv and parse text; the poller asks for all jobs at once."""
