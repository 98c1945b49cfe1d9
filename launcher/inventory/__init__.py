"""Which hosts are meant: names, groups and patterns, over an inventory or an SSH configuration."""
