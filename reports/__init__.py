"""Reports: what ledgers and findings say, for people. They read, and decide nothing."""
