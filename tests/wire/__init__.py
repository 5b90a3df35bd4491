"""RetryTransport on real sockets, against peers that misbehave."""
