"""In which charset a body is written. Pure.

A label from outside is looked up in a table of our own: the codecs of Python hold some that are
no charsets, some that raise, and remember every name that they were ever asked for.
"""

from __future__ import annotations

import functools
import re
from codecs import BOM_UTF8, BOM_UTF16_BE, BOM_UTF16_LE

SNIFFED = 1_024
_LONGEST = 256
_MEDIA_TYPE = re.compile(r"\s*([\w.+!#$&^-]+/[\w.+!#$&^-]+)", re.ASCII)
_PARAMETER = re.compile(r";\s*charset\s*=\s*[\"']?\s*([\w.:+-]+)", re.ASCII | re.IGNORECASE)
_META = re.compile(rb"<meta[^>]{1,512}?charset\s*=\s*[\"']?\s*([\w.:+-]+)", re.IGNORECASE)
_XML = re.compile(rb"\s*<\?xml[^>]{1,256}?encoding\s*=\s*[\"']([\w.:+-]+)", re.IGNORECASE)

# What a label means on the web, which is not always what it says (Encoding Standard).
_SAME = {
    "utf-8": "utf8 unicode-1-1-utf-8 x-unicode20utf8",
    "utf-16-le": "utf-16 utf-16le unicode ucs-2 iso-10646-ucs-2 csunicode",
    "utf-16-be": "utf-16be unicodefffe",
    "cp1252": "ascii us-ascii iso-8859-1 iso8859-1 latin1 latin-1 l1 windows-1252 x-cp1252 "
    "ansi-x3.4-1968 cp819 ibm819",
    "cp1250": "windows-1250 x-cp1250",
    "cp1251": "windows-1251 x-cp1251 win-1251",
    "cp1253": "windows-1253 x-cp1253",
    "cp1254": "windows-1254 x-cp1254 iso-8859-9 iso8859-9 latin5 l5",
    "cp1255": "windows-1255 x-cp1255",
    "cp1256": "windows-1256 x-cp1256",
    "cp1257": "windows-1257 x-cp1257",
    "cp1258": "windows-1258 x-cp1258",
    "iso8859-2": "iso-8859-2 latin2 l2",
    "iso8859-3": "iso-8859-3 latin3 l3",
    "iso8859-4": "iso-8859-4 latin4 l4",
    "iso8859-5": "iso-8859-5 cyrillic",
    "iso8859-6": "iso-8859-6 arabic",
    "iso8859-7": "iso-8859-7 greek",
    "iso8859-8": "iso-8859-8 iso-8859-8-i hebrew",
    "iso8859-10": "iso-8859-10 latin6 l6",
    "iso8859-13": "iso-8859-13",
    "iso8859-14": "iso-8859-14",
    "iso8859-15": "iso-8859-15 latin9 latin-9 l9",
    "iso8859-16": "iso-8859-16",
    "cp866": "ibm866 csibm866",
    "cp874": "windows-874 tis-620 iso-8859-11 iso8859-11",
    "koi8-r": "koi8 koi cskoi8r",
    "koi8-u": "koi8-ru",
    "mac-roman": "macintosh mac x-mac-roman",
    "mac-cyrillic": "x-mac-cyrillic x-mac-ukrainian",
    "gb18030": "gbk gb2312 gb-2312-80 chinese x-gbk cp936 ms936 iso-ir-58 euc-cn",
    "big5hkscs": "big5 big5-hkscs cn-big5 x-x-big5 cp950",
    "euc-jp": "x-euc-jp eucjp",
    "iso2022-jp": "iso-2022-jp csiso2022jp",
    "cp932": "shift-jis sjis x-sjis windows-31j ms932 ms-kanji",
    "cp949": "euc-kr euckr ks-c-5601-1987 ksc5601 ksc-5601 korean windows-949",
}
CODECS = {label: codec for codec, labels in _SAME.items() for label in (codec, *labels.split())}


def codec_of(label: str) -> str | None:
    """The codec a label means; ``None`` if nobody knows it."""
    return CODECS.get(label.strip().lower().replace("_", "-"))


@functools.lru_cache(maxsize=256)
def _parsed(header: str) -> tuple[str, str | None]:
    media = _MEDIA_TYPE.match(header)
    charset = _PARAMETER.search(header)
    return media[1].lower() if media else "", codec_of(charset[1]) if charset else None


def content_type(header: str | None) -> tuple[str, str | None]:
    """The media type in lower case without parameters, and the charset it names."""
    return _parsed(header[:_LONGEST]) if header else ("", None)


def charset_of(declared: str | None, media_type: str, head: bytes) -> str | None:
    """The codec for a body that begins with ``head``; ``None`` stands for UTF-8."""
    codec = declared or _by_mark(head) or _by_markup(media_type, head[:SNIFFED])
    # The mark is no part of the text.
    if codec in {None, "utf-8"} and head.startswith(BOM_UTF8):
        return "utf-8-sig"
    if codec in _MARKED and head.startswith(tuple(_MARKED.values())):
        return "utf-16"
    return codec


_MARKED = {"utf-16-le": BOM_UTF16_LE, "utf-16-be": BOM_UTF16_BE}


def _by_mark(head: bytes) -> str | None:
    if head.startswith(BOM_UTF8):
        return "utf-8"
    return next((codec for codec, mark in _MARKED.items() if head.startswith(mark)), None)


def _by_markup(media_type: str, head: bytes) -> str | None:
    found = None
    if media_type in {"text/html", "application/xhtml+xml"}:
        found = _META.search(head)
    if found is None and media_type.endswith(("/xml", "+xml")):
        found = _XML.match(head)
    if found is None:
        return None
    codec = codec_of(found[1].decode("ascii", "replace"))
    # Who could read this far in ASCII was not reading UTF-16.
    return "utf-8" if codec in _MARKED else codec
