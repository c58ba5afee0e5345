"""From text to stored chunks: ingestion, overlays, revisions."""
