"""Documents: read, edited, archived, selected, labelled."""
