"""Search, answers, plans and runs over HTTP, the chat facade and MCP."""
