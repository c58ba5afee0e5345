"""The sample collection and its golden questions."""
