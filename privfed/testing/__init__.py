"""What third parties need to test their own mechanisms, accountants, queries and learners."""
