"""The tag index: route entries, waiting requests and the choice of a destination."""
