"""Model endpoints and hosts as all workers share them."""
