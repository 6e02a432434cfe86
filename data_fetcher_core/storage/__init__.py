"""Where fetched bytes land: files, or a bucket of an S3-compatible service."""

from data_fetcher_core.storage.factory import create_storage
from data_fetcher_core.storage.files import FileStorage
from data_fetcher_core.storage.s3 import S3Storage

__all__ = ["FileStorage", "S3Storage", "create_storage"]
