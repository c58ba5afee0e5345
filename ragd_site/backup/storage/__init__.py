"""Where backups lie and in what form: stores, encryption, the repository with its manifests."""
