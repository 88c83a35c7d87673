# shellcheck shell=bash
packages() { echo php-slim php-fpm; }
needs() { echo php; }
prepare() {
    mkdir -p "$run/slim/public"
    cp "$here/apps/slim.php" "$run/slim/public/index.php"
    echo "body { margin: 0 }" >"$run/slim/public/style.css"
}
ask() {
    says / "Hello from Slim"
    says /hello/w%C3%B6rld "Hello, wörld"
    says /files/a/.b/c "a/.b/c"
    says /index.php/hello/you "Hello, you"
    says "/form?x=1" '{"x":"1","y":"2"} PUT' -X PUT -d y=2
    says /hello/you "405" -I -X DELETE
    says /nothing "404" -I
    says /style.css "text/css" -I
}
