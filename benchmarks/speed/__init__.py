"""Speed, each in one run beside what it is measured against."""
