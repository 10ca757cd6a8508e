"""The tag index: routes, waiting requests and the choice of a destination."""
