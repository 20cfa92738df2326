"""``python -m scrapy_hexshard`` is ``hexdigest-shard``."""

from __future__ import annotations

import sys

from scrapy_hexshard.cli import main

if __name__ == "__main__":
    sys.exit(main())
