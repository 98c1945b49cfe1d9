"""What NCCL and the engines read from the environment, as data, and the rules over it."""
