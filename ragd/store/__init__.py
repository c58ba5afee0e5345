"""The tables of a collection: rows of chunks, postings, statistics, index versions."""
