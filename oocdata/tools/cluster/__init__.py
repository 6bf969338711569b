"""What runs on the machines of a cluster of readers."""
