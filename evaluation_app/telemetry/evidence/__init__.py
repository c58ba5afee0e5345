"""The evidence report: which fields that the controls of four frameworks name were recorded, and the gaps."""
