"""Pure functions over documents and chunks: no request, no query."""
