"""Domains: their members, the requests to them, and those that are served here."""
