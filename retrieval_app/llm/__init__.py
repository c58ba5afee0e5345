"""Chat models: the endpoint, its answers, one call with its span."""
