"""Golden questions beside what is curated: impact, promotion, chunks."""
