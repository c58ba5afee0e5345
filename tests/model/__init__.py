"""A stateful model test: what any channel answers, also to calls at the same time, is explained by one small model."""
