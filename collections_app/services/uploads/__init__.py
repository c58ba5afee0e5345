"""Files that come in: planned, kept, unpacked, synchronized."""
