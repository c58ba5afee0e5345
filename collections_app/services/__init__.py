"""Writes: every door (pages, API, admin, tasks, commands, MCP) calls these."""
