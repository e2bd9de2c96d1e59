"""What protects and what it costs: losses, noise, base classes of mechanisms and accountants, policies."""
