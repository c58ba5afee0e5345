"""A team's own rubrics: checks of an answer beside the measures of ragd."""
