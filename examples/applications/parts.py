#!/usr/bin/env python3
"""Prints the styles, scripts and pictures that the page at standard input has from its own host, one path a line.

    parts.py URL <PAGE
"""

import html.parser
import sys
import urllib.parse


class Parts(html.parser.HTMLParser):
    """Collects the addresses that a browser loads by itself."""

    def __init__(self):
        super().__init__()
        self.found = []

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        if tag in ("script", "img"):
            self.found.append(attrs.get("src"))
        if tag == "link" and "stylesheet" in (attrs.get("rel") or ""):
            self.found.append(attrs.get("href"))


page = urllib.parse.urlsplit(sys.argv[1])
parts = Parts()
parts.feed(sys.stdin.read())
for part in dict.fromkeys(filter(None, parts.found)):
    url = urllib.parse.urlsplit(urllib.parse.urljoin(page.geturl(), part))
    if url.netloc == page.netloc:
        print(url.path + ("?" + url.query if url.query else ""))
