//! Small sites that `lowroad import nginx` translates: nginx and the server answer the same requests, each kind of translation
//! in a separate server.

use std::net::TcpListener;

use lowroad_testkit::{TempFolder, TestServer, skip};

use crate::fpm::Fpm;
use crate::host::PROGRAM;
use crate::import::{Nginx, origin, run, text};

mod answers;

/// A server, the files of its folder and requests.
struct SiteCase {
    name: &'static str,
    /// Lines of `http`.
    http: &'static str,
    /// Lines of the server. `DIR` is the folder, `ORIGIN` the URL of an origin, `SCRIPT` passes a request to PHP.
    server: &'static str,
    /// Files; `/` at the end of a target makes a link to it.
    files: &'static [&'static str],
    requests: &'static [&'static str],
}

const CASES: [SiteCase; 15] = [
    SiteCase {
        name: "expressions that open a part of their globs",
        http: "",
        server: "location ~ ^/(a|b)(/|$) { location ~ \\.php$ { SCRIPT } }\n\
                 location ~ ^/config/ { deny all; }\n\
                 location ~ \\.php$ { return 404; }\n\
                 location ~ \"^/n/[0-9]{4}[.]txt$\" { allow all; }\n\
                 location /n/ { deny all; }\n\
                 location = /icon.txt { alias DIR/root/n/1234.txt; }",
        files: &[
            "root/a/x.php",
            "root/config/i.php",
            "root/x.php",
            "root/n/1234.txt",
            "root/n/abcd.txt",
        ],
        requests: &[
            "/a/x.php",
            "/config/i.php",
            "/x.php",
            "/n/1234.txt",
            "/n/abcd.txt",
            "/icon.txt",
        ],
    },
    SiteCase {
        name: "look-aheads of rewrites",
        http: "",
        server: "rewrite ^/((?!app/|static/|index|other|remote).*)$ /app/$1 last;\n\
                 location ~ \\.php(?:$|/) { rewrite ^/(?!index|remote) /index.php$uri; SCRIPT }\n\
                 location /remote { return 301 /remote.php$request_uri; }",
        files: &[
            "root/app/a.txt",
            "root/static/s.txt",
            "root/index.php",
            "root/other.php",
            "root/remote.php",
        ],
        requests: &[
            "/a.txt",
            "/static/s.txt",
            "/app/a.txt",
            "/none",
            "/index.php",
            "/remote?x=1",
            "/remote.php",
        ],
    },
    SiteCase {
        name: "look-aheads of locations and conditions",
        http: "",
        server: "if ($uri ~ ^/closed/(?!open)) { return 403; }\n\
                 location ~ ^/(?!api|static|closed) { proxy_pass ORIGIN; proxy_set_header Host $host; }\n\
                 location /api/ { proxy_pass ORIGIN; proxy_set_header Host api; }\n\
                 location / { }",
        files: &[
            "root/static/s.txt",
            "root/apix/a.txt",
            "root/closed/open.txt",
            "root/closed/x",
        ],
        requests: &[
            "/x",
            "/api/x",
            "/static/s.txt",
            "/static/none",
            "/apix/a.txt",
            "/closed/open.txt",
            "/closed/x",
        ],
    },
    SiteCase {
        name: "an application in a folder",
        http: "",
        server: "location / { try_files $uri $uri/ =404; }\n\
                 location /blog/ { index index.php; try_files $uri $uri/ /blog/index.php?$args; }\n\
                 location ~ \\.php$ { try_files $uri =404; SCRIPT }",
        files: &[
            "root/index.html",
            "root/blog/index.php",
            "root/blog/admin/index.php",
            "root/blog/a.txt",
        ],
        requests: &[
            "/",
            "/blog",
            "/blog/",
            "/blog/post/?x=1",
            "/blog/admin/",
            "/blog/a.txt",
            "/none",
            "/blog/none.php",
        ],
    },
    SiteCase {
        name: "fields of scripts",
        http: "",
        server: "location ~ \\.php(?:$|/) { add_header X-Php 1; SCRIPT }\n\
                 location ~ \\.css$ { try_files $uri /index.php$uri; expires 1h; add_header X-Css 1; add_header X-Php 2; }\n\
                 location / { try_files $uri $uri/ /index.php$uri; }",
        files: &["root/index.php", "root/a.css"],
        requests: &["/a.css", "/b.css", "/index.php/c.css", "/index.php/x", "/x"],
    },
    SiteCase {
        name: "a front controller beside refused scripts",
        http: "",
        server: "location / { try_files $uri /index.php$is_args$args; }\n\
                 location ~ ^/index\\.php(/|$) { SCRIPT internal; }\n\
                 location ~ \\.php$ { return 404; }",
        files: &[
            "root/index.php",
            "root/a.txt",
            "root/other.php",
            "root/bundle/index.php",
            "root/bundle/b.txt",
        ],
        requests: &[
            "/",
            "/?a=1",
            "/a.txt",
            "/index.php",
            "/other.php",
            "/bundle/",
            "/bundle/b.txt",
            "/route?x=1",
        ],
    },
    SiteCase {
        name: "rewrites with break",
        http: "",
        server: "location /api/ { rewrite ^/api/(.*)$ /$1 break; proxy_pass ORIGIN; proxy_set_header Host $host; }\n\
                 location /v/ { rewrite ^/v/([0-9]+)/(.*)$ /n/$2?v=$1 break; proxy_pass ORIGIN/ignored/; proxy_set_header Host $host; }\n\
                 location /p/ { rewrite ^/p(/.*)$ $1 break; proxy_pass ORIGIN; proxy_set_header Host $host; }\n\
                 location /d/ { rewrite ^/d/(.*)$ /files/$1 break; }\n\
                 location /files/ { deny all; }\n\
                 location / { try_files $uri $uri/ @app; }\n\
                 location @app { rewrite ^/(.*)$ /app/$1 break; proxy_pass ORIGIN; proxy_set_header Host $host; }",
        files: &["root/files/a.txt", "root/x.txt"],
        requests: &[
            "/api/a?b=c",
            "/api/",
            "/api",
            "POST /api/x",
            "/v/12/a?x=y",
            "/v/x",
            "/p/q?r",
            "/d/a.txt",
            "/files/a.txt",
            "/x.txt",
            "/none?z=1",
        ],
    },
    SiteCase {
        name: "files of try_files",
        http: "",
        server: "location / { try_files $uri $uri.html $uri/ @app; }\n\
                 location /docs/ { try_files $uri.html $uri/ =404; }\n\
                 location /s/ { try_files $uri $uri/ $uri.html /s/index.html; }\n\
                 location @app { proxy_pass ORIGIN; proxy_set_header Host $host; }",
        files: &[
            "root/about.html",
            "root/docs/a.html",
            "root/docs/a/index.html",
            "root/docs/b/index.html",
            "root/s/index.html",
            "root/s/c.html",
            "root/s/d/index.html",
            "root/s/d.html",
        ],
        requests: &[
            "/about",
            "/about.html",
            "/none",
            "/docs/a",
            "/docs/b",
            "/docs/none",
            "/s/c",
            "/s/x",
            "/s/d",
            "/s/d/",
        ],
    },
    SiteCase {
        name: "files in front of an origin",
        http: "",
        server: "location /admin/ { alias DIR/admin/; try_files $uri $uri.html $uri/ /admin/index.html; }\n\
                 location /static/ { }\n\
                 location ~ \\.php$ { SCRIPT }\n\
                 location / { proxy_pass ORIGIN; proxy_set_header Host $host; }",
        files: &[
            "admin/index.html",
            "admin/a.txt",
            "admin/p.html",
            "admin/f/index.html",
            "root/static/y.php",
            "root/static/d/index.html",
        ],
        requests: &[
            "/admin/",
            "/admin/a.txt",
            "/admin/route",
            "/admin/p",
            "/admin/f",
            "/admin/f/",
            "/static/y.php",
            "/static/d",
            "/static/d/",
            "/static/none",
            "/z",
        ],
    },
    SiteCase {
        name: "an error page in another folder",
        http: "",
        server: "error_page 404 /404.html; error_page 500 502 /50x.html;\n\
                 location = /50x.html { root DIR/pages; }",
        files: &["pages/50x.html", "root/index.html"],
        requests: &["/", "/50x.html", "/none"],
    },
    SiteCase {
        name: "exact locations",
        http: "",
        server: "location = /api/ { return 404; }\nlocation = / { return 403; }\nlocation = /x { deny all; }\n\
                 location = /text { return 403 no; }\nlocation = /raw/index.html { deny all; }\n\
                 location = /empty { return 204; }\n\
                 location /api/ { proxy_pass ORIGIN; proxy_set_header Host $host; }\n\
                 location / { expires 1h; }\nlocation /raw/ { }",
        files: &[
            "root/a.txt",
            "root/x/y.txt",
            "root/raw/r.txt",
            "root/raw/index.html",
        ],
        requests: &[
            "/",
            "/api/",
            "/api/x",
            "/a.txt",
            "/raw/r.txt",
            "/raw/",
            "/raw/index.html",
            "/x",
            "/x/y.txt",
            "/empty",
        ],
    },
    SiteCase {
        name: "queries of redirects",
        http: "map $request_uri $new { default ''; ~^/old\\?p=1 /new; ~page=3 /x; /abs https://h.example/y?z=1; }",
        server: "if ($new) { return 301 $new; }\n\
                 rewrite ^/a$ /x?y=1 permanent; rewrite ^/b$ /x?y=1? permanent; rewrite ^/c$ /x? permanent;\n\
                 rewrite ^/e$ /app?y=1; rewrite ^/f$ /app?y=1? last; rewrite ^/g$ /app? last;\n\
                 location /app { proxy_pass ORIGIN; proxy_set_header Host $host; }\n\
                 location /r1 { return 301 /x; } location /r3 { return 301 https://h.example$request_uri; }\n\
                 location /r4 { return 301 https://h.example$uri; } location /r5 { return 302 /x$is_args$args; }\n\
                 location ~ ^/r7/(.*)$ { return 301 /n/$1; } location /r8 { return 302 /x#f; }",
        files: &[],
        requests: &[
            "/a",
            "/a?q=2",
            "/b?q=2",
            "/c?q=2",
            "/e",
            "/e?q=2",
            "/f?q=2",
            "/g?q=2",
            "/r1?q=2",
            "/r3?q=2",
            "/r4?q=2",
            "/r5",
            "/r5?q=2",
            "/r7/k?q=2",
            "/r8?q=2",
            "/old?p=1",
            "/z?page=3",
            "/abs",
        ],
    },
    SiteCase {
        name: "expressions of files",
        http: "",
        server: "location ~ \"\\.[0-9a-f]{8}\\.(css|txt)$\" { add_header X-Hash 1; }\n\
                 location ~* \\.(PNG|gif)$ { expires 1d; add_header X-Image 1; }\n\
                 location ~* ^/secret { return 404; }\nlocation ~* ^/go/(.*)$ { return 301 /new/$1; }",
        files: &[
            "root/a.0123abcd.css",
            "root/a.min.css",
            "root/b.png",
            "root/c.PNG",
            "root/Secret.txt",
        ],
        requests: &[
            "/a.0123abcd.css",
            "/a.min.css",
            "/b.png",
            "/c.PNG",
            "/Secret.txt",
            "/GO/x",
            "/go/y",
        ],
    },
    SiteCase {
        name: "rewrites of one location",
        http: "",
        server: "location / { rewrite ^/(.*)$ /app/$1 last; }\nlocation /static/ { }\n\
                 location /app/ { proxy_pass ORIGIN; proxy_set_header Host $host; }\nlocation ~ \\.php$ { SCRIPT }",
        files: &["root/static/a.txt", "root/x.php", "root/static/y.php"],
        requests: &["/z", "/static/a.txt", "/x.php", "/static/y.php", "/app/q"],
    },
    SiteCase {
        name: "links, encoded slashes and the order of refusals",
        http: "",
        server: "location /a/ { return 404; }\nlocation = /c { return 301 /d; }\n\
                 if ($http_accept = \"x\") { return 410; }\nif (-f DIR/down) { return 503; }\n\
                 location / { try_files $uri $uri/ /index.html; }",
        files: &["root/index.html", "outside/o.txt", "root/l -> outside"],
        requests: &["/l/o.txt", "/a%2Fb", "/a/x", "/c", "/z"],
    },
];

fn fill(folder: &TempFolder, files: &[&str]) {
    let script = "<?php header('Content-Type: text/plain'); echo $_SERVER['SCRIPT_NAME'], ' ', $_SERVER['REQUEST_URI'], ' ',\
                  $_SERVER['QUERY_STRING'], ' ', $_SERVER['DOCUMENT_URI'];";
    std::fs::create_dir_all(folder.path().join("root")).expect("a folder");
    for name in files {
        match name.split_once(" -> ") {
            Some((link, target)) => {
                let target = folder.path().join(target);
                std::os::unix::fs::symlink(target, folder.path().join(link)).expect("a link");
            }
            None if name.ends_with(".php") => drop(folder.file(name, script)),
            None => drop(folder.file(name, name)),
        }
    }
}

/// The difference of the answers of nginx and of the server with the translated configuration; empty without one.
fn differences(case: &SiteCase) -> Option<String> {
    let folder = TempFolder::new();
    fill(&folder, case.files);
    let _fpm = Fpm::start(&folder)?;
    let origin = origin();
    let free = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = free.local_addr().expect("an address");
    drop(free);
    let path = folder.path().display().to_string();
    let script = "include /etc/nginx/fastcgi_params; fastcgi_split_path_info ^(.+?\\.php)(/.*)$;\n\
                  fastcgi_param SCRIPT_FILENAME $document_root$fastcgi_script_name; fastcgi_pass unix:DIR/fpm.sock;";
    let config = format!(
        "user root;\nworker_processes 1;\npid DIR/nginx.pid;\nerror_log DIR/error.log;\nevents {{ }}\nhttp {{\n\
         include /etc/nginx/mime.types;\naccess_log off;\nclient_body_temp_path DIR/temp;\nproxy_temp_path DIR/temp;\n\
         fastcgi_temp_path DIR/temp;\nuwsgi_temp_path DIR/temp;\nscgi_temp_path DIR/temp;\n{}\n\
         server {{\nlisten {address} default_server;\nserver_name site.example;\nroot DIR/root;\n{}\n}}\n}}\n",
        case.http, case.server
    );
    let config = config.replace("SCRIPT }", &format!("{script} }}"));
    let config = config.replace("SCRIPT internal", &format!("{script} internal"));
    let config = config
        .replace("DIR", &path)
        .replace("ORIGIN", &origin.url());
    let file = folder.file("nginx.conf", config).display().to_string();
    let _nginx = Nginx::start(&folder, address).expect("nginx starts");

    let import = run(&["import", "nginx", &file]);
    assert!(
        import.status.success(),
        "{}: {}",
        case.name,
        text(&import.stderr)
    );
    let imported = text(&import.stdout).replace(&address.to_string(), "127.0.0.1:0");
    let admin = format!("[server]\nadmin = \"{path}/admin.sock\"\n");
    let server = TestServer::run(
        PROGRAM,
        &folder,
        &imported.replacen("[server]\n", &admin, 1),
    );
    let lines = case.requests.iter().map(|it| match it.contains(' ') {
        true => format!("{it}\n"),
        false => format!("GET {it}\n"),
    });
    let list = folder.file("requests", lines.collect::<String>());
    let (from, to) = (
        format!("http://{address}"),
        format!("http://{}", server.address()),
    );
    let list = list.display().to_string();
    let servers = [
        "--from",
        &from,
        "--to",
        &to,
        "--host",
        "site.example",
        "--rate",
        "1000",
    ];
    // Origins get the removed front of a path, and files without a known ending have another media type.
    let compared = run(&[&["compare", &list], &servers[..]].concat());
    Some(match compared.status.success() {
        true => String::new(),
        false => format!("{}: {}\n{imported}", case.name, text(&compared.stdout)),
    })
}

#[test]
fn translated_sites_answer_as_nginx_does() {
    const NAME: &str = "translated_sites_answer_as_nginx_does";
    if !std::path::Path::new("/usr/sbin/nginx").exists() {
        skip(NAME, "nginx is not installed");
        return;
    }
    for case in CASES.iter().chain(&answers::CASES) {
        match differences(case) {
            None => return skip(NAME, "php-fpm is not installed"),
            Some(found) => assert_eq!(found, ""),
        }
    }
}
