"""The pages of one trace and of one span."""
