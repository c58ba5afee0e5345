"""Alerts: rules over what the database knows, their states, and signed webhooks."""
