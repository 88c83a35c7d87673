//! Sites in which nginx looks for other files than those at the requested paths, or other locations answer.

use super::SiteCase;

/// Servers with requests.
pub const CASES: [SiteCase; 6] = [
    SiteCase {
        name: "lists of files without the requested one",
        http: "",
        server: "location / { try_files /app$uri =404; }\nlocation /p/ { try_files $uri.txt $uri/ =404; }\n\
                 location /one/ { try_files /app/one.txt =404; }\nlocation = /e { try_files $uri.txt =404; }\n\
                 location ~ ^/r/(.*)$ { try_files $uri.txt /app/one.txt; }",
        files: &[
            "root/conf.ini",
            "root/app/a.txt",
            "root/app/sub/b.txt",
            "root/app/one.txt",
            "root/p/c.txt",
            "root/p/c.txt.txt",
            "root/p/d/index.html",
            "root/one/x.txt",
            "root/e.txt",
            "root/r/s.txt",
        ],
        requests: &[
            "/conf.ini",
            "/a.txt",
            "/sub/b.txt",
            "/app/a.txt",
            "/p/c",
            "/p/c.txt",
            "/p/d",
            "/p/d/",
            "/p/none",
            "/one/x.txt",
            "/one/none",
            "/e",
            "/e.txt",
            "/r/s",
            "/r/none",
        ],
    },
    SiteCase {
        name: "named locations for all paths",
        http: "",
        server: "location / { try_files /none @app; }\nlocation /no/ { try_files _ @no; }\nlocation /go/ { try_files _ @go; }\n\
                 location /down/ { try_files /none2 /none3 @app; }\nlocation @no { return 403; }\n\
                 location @go { return 302 /x; }\nlocation @app { proxy_pass ORIGIN; proxy_set_header Host $host; }",
        files: &[
            "root/conf.ini",
            "root/no/x.txt",
            "root/go/x.txt",
            "root/down/x",
        ],
        requests: &[
            "/",
            "/conf.ini",
            "/none.php",
            "/no/x.txt",
            "/go/x.txt",
            "/down/x",
        ],
    },
    SiteCase {
        name: "paths behind scripts beside a front controller",
        http: "",
        server: "location / { try_files $uri $uri/ /index.php?$args; }\nlocation ~ \\.php$ { SCRIPT }",
        files: &["root/index.php", "root/a.php", "root/b.txt"],
        requests: &[
            "/a.php",
            "/a.php/x",
            "/a.php/x.css?q=1",
            "/a.php/",
            "/index.php/x/y?z=1",
            "/b.txt",
            "/b.txt/x",
            "/none.php/x",
        ],
    },
    SiteCase {
        name: "paths behind scripts beside files",
        http: "",
        server: "location ~ ^/(a|b)\\.php$ { SCRIPT }\nlocation /c/ { location ~ \\.php$ { SCRIPT } }\nlocation /d/ { deny all; }\n\
                 location ~ ^/e\\.php(/|$) { try_files $uri =404; SCRIPT }",
        files: &["root/a.php", "root/c/c.php", "root/e.php", "root/x.txt"],
        requests: &[
            "/a.php",
            "/a.php/x",
            "/c/c.php",
            "/c/c.php/x",
            "/x.txt",
            "/d/a.php/x",
            "/e.php",
            "/e.php/x",
        ],
    },
    SiteCase {
        name: "paths behind scripts beside an origin",
        http: "",
        server: "location ~* \\.php$ { SCRIPT }\nlocation / { proxy_pass ORIGIN; proxy_set_header Host $host; }",
        files: &["root/a.php"],
        requests: &["/a.php", "/a.php/x", "/a.PHP/x", "/x"],
    },
    SiteCase {
        name: "conditions that select an origin, and answers for missing files",
        http: "",
        server: "location /c/ { if ($arg_beta) { proxy_pass ORIGIN; } if ($request_method = POST) { proxy_pass ORIGIN; }\n\
                 proxy_set_header Host $host; proxy_pass ORIGIN/v2/; }\n\
                 location / { proxy_pass ORIGIN; proxy_set_header Host $host; }\n\
                 location /content { if (!-f $request_filename) { rewrite (.*) /$1 last; break; } }\n\
                 location = /text { default_type application/json; return 200 '{}'; }",
        files: &["root/content/a.txt"],
        requests: &[
            "/x",
            "/c/x",
            "/c/x?beta=1",
            "POST /c/x",
            "/content/a.txt",
            "/text",
        ],
    },
];
