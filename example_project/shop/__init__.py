"""A small shop on this machine, to be crawled: seeded, with the faults a real one has."""

from shop.catalogue import Product, catalogue
from shop.process import ShopError, open_shop

__all__ = ["Product", "ShopError", "catalogue", "open_shop"]
