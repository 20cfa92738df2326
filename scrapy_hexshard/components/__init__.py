"""The Scrapy side: the only folder that imports Scrapy."""
