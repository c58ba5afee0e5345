"""Single chunks: edits, previews, neighbours, outliers, findings."""
