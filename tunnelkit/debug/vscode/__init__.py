"""VS Code's tasks.json and launch.json."""
