"""What the public functions share: their inputs, their result and their examples."""
