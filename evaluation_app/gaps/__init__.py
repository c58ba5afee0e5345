"""Content gaps: what people asked a collection and it did not answer, in groups of like questions."""
