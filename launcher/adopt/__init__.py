"""From what runs, or was typed somewhere, to configuration."""
