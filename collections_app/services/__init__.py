"""Writes: every channel (pages, API, admin, tasks, commands, MCP) calls these."""
