"""From a purpose or a model's name to the endpoint that serves it: the environment's, else one of the database."""
