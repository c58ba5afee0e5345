"""Collections and what is in them, jobs and keys over HTTP."""
