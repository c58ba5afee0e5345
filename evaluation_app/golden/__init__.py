"""Golden sets: kept, changed, imported, exported, suggested."""
