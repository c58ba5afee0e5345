"""Who did what, who may do what, what it costs: audit log, keys, prices, security policy."""
