"""The recorder of an event log: what is counted and packed on the node's loop."""
