"""What goes over relays, and what this node relays and holds for others."""
