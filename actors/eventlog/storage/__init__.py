"""The files of an event log: segments, blocks and their writer thread."""
