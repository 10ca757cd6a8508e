"""Services of the broker's own node: handlers, and the requests that they answer."""
