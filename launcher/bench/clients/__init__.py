"""The measuring programs that launch knows: how each is asked, and how its result is read. Pure."""
