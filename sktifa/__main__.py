"""``python -m sktifa``."""

from sktifa.cli import main

raise SystemExit(main())
