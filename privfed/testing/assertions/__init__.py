"""Assertions for anybody's test suite, in any framework; ``privfed.testing`` has their names."""
