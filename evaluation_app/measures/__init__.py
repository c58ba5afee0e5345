"""Measures of retrieval and answers. Pure: no Django, no database, no network; the same input, the same figures."""
