"""Models: embedders and rerankers, local ones and those behind an endpoint."""
