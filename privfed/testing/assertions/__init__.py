"""Assertions for test suites in any framework; exported by ``privfed.testing``."""
