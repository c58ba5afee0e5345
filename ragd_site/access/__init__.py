"""Who may open which page: the access of each request, and the permission that each address needs."""
