"""Links between nodes: the handshakes, the sessions, and the nodes that are dialled."""
