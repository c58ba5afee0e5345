"""Why a ranking is as it is: stages, arithmetic, dropped candidates, SQL."""
