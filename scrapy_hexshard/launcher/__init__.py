"""Starts, watches and stops one worker process per shard; it knows neither Scrapy nor a store."""
