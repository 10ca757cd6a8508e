"""Diagnostics of a node: workers that are held up, and routes that grow or are cut."""
