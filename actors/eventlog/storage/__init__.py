"""The files of an event log: segments, blocks and the thread that writes them."""
