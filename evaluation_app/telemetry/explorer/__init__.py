"""The span explorer and the lists of traces."""
