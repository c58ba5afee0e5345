"""Which change broke a golden question: the changes between two runs, and a search over the states between them."""
