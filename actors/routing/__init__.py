"""The router: address table, rules, requests, undeliverable messages and dead letters."""
