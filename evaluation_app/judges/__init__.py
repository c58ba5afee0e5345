"""Judges of answers: what each sentence of the context and the answer is worth, said by a model or by measurement."""
