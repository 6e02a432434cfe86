"""Recipes that come along: a site, a list, a sitemap, an API; and how to load one's own."""

from data_fetcher_core.recipes.cursor import CursorLocator
from data_fetcher_core.recipes.json_api import ApiLocator, api_recipe
from data_fetcher_core.recipes.links import links_of
from data_fetcher_core.recipes.loading import load_recipe
from data_fetcher_core.recipes.scope import Scope
from data_fetcher_core.recipes.site import SiteLocator, crawl_recipe
from data_fetcher_core.recipes.sitemap import SitemapLocator, sitemap_recipe
from data_fetcher_core.recipes.url_list import UrlListLocator, url_list_recipe

__all__ = [
    "ApiLocator",
    "CursorLocator",
    "Scope",
    "SiteLocator",
    "SitemapLocator",
    "UrlListLocator",
    "api_recipe",
    "crawl_recipe",
    "links_of",
    "load_recipe",
    "sitemap_recipe",
    "url_list_recipe",
]
