"""What session and agent send one another. The agent imports it for type checking only."""
