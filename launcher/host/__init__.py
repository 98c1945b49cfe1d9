"""The only package that talks to machines: transports, the look (probe) and the change (apply)."""
