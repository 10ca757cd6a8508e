"""Observers of a running node: statistics, diagnostics and the watchdog of its loop."""
