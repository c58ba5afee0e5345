"""The pages of collections: one function per address."""
