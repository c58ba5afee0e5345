"""Texts cut into chunks: blocks, sentences, words and the limits of a chunk."""
