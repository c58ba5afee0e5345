"""One embedding model tried on questions over a sample of a collection's documents."""
