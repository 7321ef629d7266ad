"""Commands that debug a program."""
