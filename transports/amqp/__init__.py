"""A listener for clients of AMQP 1.0, which send and receive by the names of a dispatcher."""
