"""Jobs: queued, claimed, followed, retried, cancelled."""
