"""Reports on ledgers and findings. They only read, and decide nothing."""
