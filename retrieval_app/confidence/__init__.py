"""How likely a passage answers a question, and what follows from it. Pure but for the words of the index."""
