"""The recorder of an event log: counting and packing on the node's loop."""
