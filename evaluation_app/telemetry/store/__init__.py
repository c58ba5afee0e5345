"""The span store: how spans are written, kept, dropped, read back and sent on."""
