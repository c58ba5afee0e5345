"""Logging in: password, single sign-on, a proxy's header, second factor, sessions."""
