"""Links that join nodes, and the transports that make them."""
