"""The topics of a node, and those of other nodes that its engines follow."""
