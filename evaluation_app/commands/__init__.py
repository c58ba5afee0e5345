"""What a person does with ragd from a shell, one module per subject. `subcommands.py` names them."""
