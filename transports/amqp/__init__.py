"""Parts of an edge for clients of AMQP 1.0."""
