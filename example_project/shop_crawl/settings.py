import os

BOT_NAME = "shop_crawl"
SPIDER_MODULES = ["shop_crawl.spiders"]

# The shard plan, the leases and the resumable crawl come with these lines; no spider knows of them.
ADDONS = {"scrapy_hexshard.HexShardAddon": 300}
HEXSHARD_STORE = "crawl.sqlite3"
HEXSHARD_ITEMS = True  # items are kept with the work that found them, each exactly once

# Where the shop is; `python -m shop --port 8000` opens it here.
SHOP_URL = os.environ.get("SHOP_URL", "http://127.0.0.1:8000")

ROBOTSTXT_OBEY = True
TELNETCONSOLE_ENABLED = False
LOG_LEVEL = "INFO"
# The shop is ours and on this machine. Give a real site a DOWNLOAD_DELAY.
DOWNLOAD_DELAY = 0
