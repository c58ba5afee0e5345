"""Citations of an answer, whole and while it comes."""
