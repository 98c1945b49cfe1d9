"""Plans and roll-outs over all hosts of a deployment."""
