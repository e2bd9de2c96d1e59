"""Private classifiers and regressors that :mod:`league` compares, a file for each."""
