"""The directory of a node, its file, and the adverts that are told and heard."""
