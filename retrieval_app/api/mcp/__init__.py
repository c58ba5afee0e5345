"""POST /mcp: the tools of ragd for language models. The site hands the tools of all apps to the server."""
