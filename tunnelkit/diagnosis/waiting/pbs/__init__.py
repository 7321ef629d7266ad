"""Rules about a waiting job of PBS: its comment, its holds, the nodes."""
