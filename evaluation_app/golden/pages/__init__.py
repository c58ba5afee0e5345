"""The pages of golden sets."""
