"""Observers of a node at work: statistics, diagnostics and the watchdog of its loop."""
