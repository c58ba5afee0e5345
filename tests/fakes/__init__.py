"""Stand-ins for what a test may not reach: the paid services, played over real sockets."""
