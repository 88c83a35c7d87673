#!/usr/bin/env python3
"""Walks through a WordPress as its users do, and fails at what is another's, stale or broken.

    walk.py SITE ADDRESS [install]

SITE is host and port of the site's own URL, ADDRESS where it is asked: Lowroad, or what is behind it. Each request is a
line of output with what the response says to caches and of them.
"""

import gzip
import http.client
import json
import os
import re
import sys
import urllib.parse

SITE, ADDRESS = sys.argv[1:3]
PASSWORD = "secret-pass-1"
# One pixel.
PNG = bytes.fromhex(
    "89504e470d0a1a0a0000000d49484452000000010000000108060000001f15c489"
    "0000000d49444154789c6360f8cfc0f01f00050001ff56c72f0d0000000049454e44ae426082"
)


class User:
    """Somebody with cookies of their own."""

    def __init__(self, name):
        self.name, self.cookies = name, {}

    def ask(self, method, path, body=None, fields=None):
        head = {"Host": SITE, "Accept-Encoding": "identity"}
        if self.cookies:
            head["Cookie"] = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
        if isinstance(body, dict):
            body = urllib.parse.urlencode(body).encode()
            head["Content-Type"] = "application/x-www-form-urlencoded"
        head.update(fields or {})
        connection = http.client.HTTPConnection(ADDRESS, timeout=60)
        connection.request(method, path, body, head)
        response = connection.getresponse()
        response.data = response.read()
        response.text = response.data.decode("utf8", "replace")
        for line in response.headers.get_all("Set-Cookie") or []:
            name, value = line.split(";")[0].split("=", 1)
            self.cookies[name] = value
            if not value.strip() or "Max-Age=0" in line:
                del self.cookies[name]
        said = [f"{name}: {response.headers.get_all(name)}" for name in ("Cache-Control", "Vary", "Cache-Status")]
        print(f"{self.name} {method} {path} {response.status} {len(response.data)}", *said)
        return response

    def get(self, path, fields=None):
        return self.follow(self.ask("GET", path, fields=fields))

    def follow(self, response):
        for _ in range(5):
            if response.status not in (301, 302, 303):
                break
            response = self.ask("GET", path_of(response.headers["Location"]))
        return response


def path_of(url):
    """Path and query of a URL, which is this site's and says no other port."""
    url = urllib.parse.urlsplit(url.replace("&amp;", "&").replace("&#038;", "&"))
    assert url.netloc in ("", SITE), f"it leads to {url.netloc}"
    return url.path + ("?" + url.query if url.query else "")


def has(text, response, why):
    assert text in response.text, why


def lacks(text, response, why):
    assert text not in response.text, why


def install(admin):
    form = {
        "weblog_title": "T",
        "user_name": "admin",
        "admin_password": PASSWORD,
        "admin_password2": PASSWORD,
        "pw_weak": "1",
        "admin_email": "a@example.org",
        "blog_public": "0",
        "language": "",
    }
    has("Success", admin.ask("POST", "/wp-admin/install.php?step=2", form), "it is not installed")


def files(visitor):
    """Style sheets: encodings, validators and ranges are of the same bytes."""
    page = visitor.get("/")
    for url in re.findall(r"""href=['"]([^'"]*\.css[^'"]*)""", page.text)[:3]:
        path = path_of(url)
        visitor.ask("GET", path)
        plain = visitor.ask("GET", path)
        for _ in range(2):
            packed = visitor.ask("GET", path, fields={"Accept-Encoding": "gzip"})
            assert packed.headers["Content-Encoding"] == "gzip" and gzip.decompress(packed.data) == plain.data
        tag = {"If-None-Match": plain.headers["ETag"]}
        assert visitor.ask("GET", path, fields=tag).status == 304
        part = visitor.ask("GET", path, fields={"Range": "bytes=10-19"})
        assert part.status == 206 and part.data == plain.data[10:20]


def log_in(admin, visitor):
    admin.get("/wp-login.php")
    form = {"log": "admin", "pwd": PASSWORD, "redirect_to": f"http://{SITE}/wp-admin/", "testcookie": "1"}
    has("Dashboard", admin.follow(admin.ask("POST", "/wp-login.php", form)), "the login failed")
    has("wpadminbar", admin.get("/"), "a page for visitors")
    for other in (visitor, User("stranger")):
        lacks("wpadminbar", other.get("/"), "another's page")
        assert "wp-login" in other.ask("GET", "/wp-admin/").headers["Location"]


def rest(admin, path, content):
    """A request to the interface that the editor uses."""
    page = admin.get("/wp-admin/post-new.php").text
    nonce = re.search(r'createNonceMiddleware\(\s*"([0-9a-f]+)"', page).group(1)
    fields = {"X-WP-Nonce": nonce}
    if isinstance(content, bytes):
        fields.update({"Content-Type": "image/png", "Content-Disposition": 'attachment; filename="a.png"'})
    elif content is not None:
        content = json.dumps(content).encode()
        fields["Content-Type"] = "application/json"
    method = "GET" if content is None else "POST"
    response = admin.ask(method, "/index.php?rest_route=/wp/v2/" + path, content, fields)
    assert response.status in (200, 201), response.text[:300]
    return json.loads(response.text)


def post(admin, visitor, title):
    """A draft is nobody else's; what is published is there at once."""
    visitor.get("/")
    number = rest(admin, "posts", {"title": title, "content": "words", "status": "draft"})["id"]
    has(title, admin.get(f"/?p={number}&preview=true"), "no preview")
    for path in (f"/?p={number}&preview=true", f"/?p={number}"):
        lacks(title, visitor.get(path), "a draft for all")
    rest(admin, f"posts/{number}", {"status": "publish"})
    has(title, visitor.get("/"), "a stale front page after a post")
    has(title, visitor.get(f"/?p={number}"), "a stale 404 after a post")
    return number


def comment(admin, visitor, number, title):
    """Who comments sees the comment, the others once it is approved."""
    stranger, words = User("stranger"), f"hello from {title}"
    form = {"comment": words, "author": title, "email": f"{title}@example.org", "comment_post_ID": str(number)}
    response = visitor.ask("POST", "/wp-comments-post.php", form)
    assert response.status == 302, response.text[:300]
    has(words, visitor.follow(response), "its own comment is not there")
    lacks(words, stranger.get(f"/?p={number}"), "a comment that waits, for all")
    for held in rest(admin, "comments&status=hold", None):
        rest(admin, f"comments/{held['id']}", {"status": "approved"})
    has(words, stranger.get(f"/?p={number}"), "stale after a comment")


def upload(admin, visitor):
    for data in (PNG, PNG + os.urandom(3_000_000)):
        path = path_of(rest(admin, "media", data)["source_url"])
        for _ in range(2):
            assert visitor.ask("GET", path).data == data, "another picture"
        part = visitor.ask("GET", path, fields={"Range": "bytes=-20"})
        assert part.status == 206 and part.data == data[-20:]


def log_out(admin):
    page = admin.get("/wp-admin/").text
    link = re.search(r"""href=['"]([^'"]*action=logout[^'"]*)""", page).group(1)
    assert admin.ask("GET", path_of(link)).status == 302
    assert "wp-login" in admin.ask("GET", "/wp-admin/").headers["Location"], "still logged in"
    lacks("wpadminbar", admin.get("/"), "a page from before")


def main():
    admin, visitor, title = User("admin"), User("visitor"), "post-" + os.urandom(4).hex()
    if "install" in sys.argv:
        install(admin)
    files(visitor)
    log_in(admin, visitor)
    number = post(admin, visitor, title)
    comment(admin, visitor, number, title)
    upload(admin, visitor)
    log_out(admin)
    print(f"all is well at {ADDRESS}")


main()
